"""The documentation of this repository; `docs.generate` writes those of its pages that follow from the code."""
