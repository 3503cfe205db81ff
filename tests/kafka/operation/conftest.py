"""A node whose REST interface is asked, and topics of it."""

from __future__ import annotations
