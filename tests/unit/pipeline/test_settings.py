"""Settings of Spark that commands choose by themselves."""

from __future__ import annotations

from sidecar.cli.pipeline.running import settings_of_spark

JAVA = "spark.driver.extraJavaOptions"


def test_a_brief_job_on_this_machine_is_not_compiled_for_speed_and_own_options_come_last() -> None:
    assert settings_of_spark("local[*]", (), brief=True) == {JAVA: "-XX:TieredStopAtLevel=1"}
    own = (f"{JAVA}=-XX:TieredStopAtLevel=4", "spark.ui.enabled=false")
    found = settings_of_spark("local[2]", own, brief=True)
    assert found == {JAVA: "-XX:TieredStopAtLevel=1 -XX:TieredStopAtLevel=4", "spark.ui.enabled": "false"}


def test_other_jobs_and_clusters_have_what_was_said_alone() -> None:
    assert settings_of_spark("local[*]", (), brief=False) == {}
    assert settings_of_spark("spark://host:7077", ("spark.a=b",), brief=True) == {"spark.a": "b"}
