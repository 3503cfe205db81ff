"""A linter for Grafana dashboards.

The rules from `template_datasource` to `uneditable_dashboard` are those of Grafana's dashboard-linter, under its names;
that program cannot be had from a package registry. The others are ours: identity, layout, and legends, tables and
variables that name something which is there. Each rule takes a dashboard and yields one sentence for each fault.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from tests.unit.deploy import promql
from tests.unit.deploy.catalogue import TARGET_LABELS, samples
from tests.unit.deploy.files import DASHBOARDS, Tree, load_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
UNITS = {"none", "short", "s", "percentunit", "bytes", "Bps", "reqps", "recps", "cps"}
GRID_WIDTH = 24
SCHEMA_VERSIONS = range(39, 43)  # Grafana 11 and 12
COMPUTED_COLUMNS = {"Time", "Value"}

_LABEL_VALUES = re.compile(r"label_values\((?P<selector>\w+(?:\{.*\})?), (?P<label>\w+)\)")


def panels(dashboard: Tree) -> list[Tree]:
    """Every panel that shows data."""
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def targets(dashboard: Tree) -> Iterator[tuple[str, Tree]]:
    """Every query with the title of its panel."""
    for panel in panels(dashboard):
        yield from ((panel["title"], target) for target in panel.get("targets", []))


def queries(dashboard: Tree) -> Iterator[tuple[str, promql.Reading]]:
    """Every query, read."""
    yield from ((title, promql.read(target["expr"])) for title, target in targets(dashboard))


def _variables(dashboard: Tree) -> dict[str, Tree]:
    return {variable["name"]: variable for variable in dashboard["templating"]["list"]}


def template_datasource(dashboard: Tree) -> Iterator[str]:
    """The data source is chosen by a variable."""
    variable = _variables(dashboard).get("datasource", {})
    if (variable.get("type"), variable.get("query")) != ("datasource", "prometheus"):
        yield "no variable `datasource` of type datasource for prometheus"


def _selector_variable(dashboard: Tree, name: str) -> Iterator[str]:
    variable = _variables(dashboard).get(name)
    if variable is None:
        yield f"no variable {name}"
        return
    wanted = {
        "label": name.capitalize(),
        "type": "query",
        "datasource": DATASOURCE,
        "multi": True,
        "includeAll": True,
        "allValue": ".+",
    }
    for key, value in wanted.items():
        if variable.get(key) != value:
            yield f"variable {name}: {key} is {variable.get(key)!r}"


def template_job(dashboard: Tree) -> Iterator[str]:
    """A variable selects jobs."""
    yield from _selector_variable(dashboard, "job")


def template_instance(dashboard: Tree) -> Iterator[str]:
    """A variable selects instances."""
    yield from _selector_variable(dashboard, "instance")


def template_label_promql(dashboard: Tree) -> Iterator[str]:
    """Variables take the values of a label that the series they look at has."""
    for name, variable in _variables(dashboard).items():
        if variable["type"] != "query":
            continue
        query = _LABEL_VALUES.fullmatch(variable["query"]["query"])
        if query is None or variable["definition"] != variable["query"]["query"]:
            yield f"variable {name}: {variable['query']} is no label_values()"
            continue
        reading = promql.read(query["selector"])
        yield from (f"variable {name}: {problem}" for problem in reading.problems)
        if query["label"] not in reading.labels:
            yield f"variable {name}: its series has no label {query['label']}"


def template_on_time_change_reload(dashboard: Tree) -> Iterator[str]:
    """Variables follow the time range."""
    for name, variable in _variables(dashboard).items():
        if variable["type"] == "query" and variable["refresh"] != 2:
            yield f"variable {name} is not reloaded when the time range changes"


def panel_datasource(dashboard: Tree) -> Iterator[str]:
    """Panels and queries use the chosen data source."""
    for panel in panels(dashboard):
        for part in (panel, *panel.get("targets", [])):
            if part.get("datasource") != DATASOURCE:
                yield f"{panel['title']}: data source {part.get('datasource')}"


def panel_title_description(dashboard: Tree) -> Iterator[str]:
    """Every panel says what it shows."""
    for panel in panels(dashboard):
        if not panel.get("title") or not panel.get("description"):
            yield f"panel {panel['id']} has no title or no description"


def panel_units(dashboard: Tree) -> Iterator[str]:
    """Every panel has a unit that Grafana knows."""
    for panel in panels(dashboard):
        unit = panel["fieldConfig"]["defaults"].get("unit")
        if unit not in UNITS:
            yield f"{panel['title']}: unit {unit}"


def panel_no_targets(dashboard: Tree) -> Iterator[str]:
    """Every panel asks for something."""
    yield from (f"{panel['title']} asks for nothing" for panel in panels(dashboard) if not panel.get("targets"))


def target_promql(dashboard: Tree) -> Iterator[str]:
    """Every query parses and asks for what a node exposes."""
    for title, reading in queries(dashboard):
        yield from (f"{title}: {problem}" for problem in reading.problems)


def target_rate_interval(dashboard: Tree) -> Iterator[str]:
    """Ranges fit the resolution; a single number over the time shown may take all of it."""
    for title, target in targets(dashboard):
        for window in re.findall(r"\[([^\]]*)\]", target["expr"]):
            if window != "$__rate_interval" and not (window == "$__range" and target.get("instant")):
                yield f"{title}: range {window}"


def _target_label(dashboard: Tree, label: str) -> Iterator[str]:
    for title, reading in queries(dashboard):
        for selection in reading.selections:
            if (label, f"{promql.VARIABLE}{label}") not in selection.matchers:
                yield f'{title}: {selection.name} is not selected by {label}=~"${label}"'
    for title, target in targets(dashboard):
        if re.search(rf'\b{label}="', target["expr"]):
            yield f"{title}: {label} is compared, but a choice of several is a pattern"


def target_job(dashboard: Tree) -> Iterator[str]:
    """Every series is selected by the chosen jobs."""
    yield from _target_label(dashboard, "job")


def target_instance(dashboard: Tree) -> Iterator[str]:
    """Every series is selected by the chosen instances."""
    yield from _target_label(dashboard, "instance")


def target_counter_agg(dashboard: Tree) -> Iterator[str]:
    """What only rises is shown as a rate: its value says when the process started, and nothing else."""
    known = samples()
    for title, reading in queries(dashboard):
        for selection in reading.selections:
            sample = known.get(selection.name)
            if sample and sample.rises and not promql.RATES.intersection(selection.functions):
                yield f"{title}: {selection.name} is shown without a rate"


def uneditable_dashboard(dashboard: Tree) -> Iterator[str]:
    """The file is the source."""
    if dashboard["editable"] is not False:
        yield "can be edited in the browser"


def identity(dashboard: Tree) -> Iterator[str]:
    """Links to the dashboard last, and it can be provisioned: no number of one database, no question on import."""
    if not re.fullmatch(r"sidecar-[a-z-]+", dashboard.get("uid") or ""):
        yield f"uid is {dashboard.get('uid')!r}"
    if dashboard.get("id") is not None:
        yield f"id is {dashboard['id']}"
    if "__inputs" in dashboard or "__requires" in dashboard:
        yield "is in the form for sharing"
    if dashboard["schemaVersion"] not in SCHEMA_VERSIONS:
        yield f"schemaVersion is {dashboard['schemaVersion']}"
    if not dashboard.get("tags"):
        yield "has no tags"


def panel_ids(dashboard: Tree) -> Iterator[str]:
    """Panels have numbers of their own, and so have the queries of a panel."""
    ids = Counter(panel.get("id") for panel in dashboard["panels"])
    yield from (f"{count} panels have the id {number}" for number, count in ids.items() if count > 1 or not number)
    for panel in panels(dashboard):
        references = [target["refId"] for target in panel.get("targets", [])]
        if len(set(references)) != len(references):
            yield f"{panel['title']}: queries {references}"


def layout(dashboard: Tree) -> Iterator[str]:
    """No two panels lie on one another, and none hangs over the edge."""
    taken: dict[tuple[int, int], str] = {}
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        if place["x"] + place["w"] > GRID_WIDTH:
            yield f"{panel['title']} hangs over the edge"
        for cell in ((x + place["x"], y + place["y"]) for x in range(place["w"]) for y in range(place["h"])):
            other = taken.setdefault(cell, panel["title"])
            if other != panel["title"]:
                yield f"{panel['title']} lies on {other}"
                break


def shown_labels(dashboard: Tree) -> Iterator[str]:
    """Legends and table columns name labels that the result has."""
    for panel in panels(dashboard):
        for target in panel.get("targets", []):
            labels = promql.read(target["expr"]).labels
            named = set(re.findall(r"\{\{\s*(\w+)\s*\}\}", target.get("legendFormat", "")))
            for step in panel.get("transformations", []):
                named |= set(step["options"]["renameByName"]) - COMPUTED_COLUMNS
            yield from (f"{panel['title']} shows {label}, which is not there" for label in sorted(named - labels))


def used_variables(dashboard: Tree) -> Iterator[str]:
    """Variables that queries use are defined, and none is there for nothing."""
    defined = _variables(dashboard)
    used = {"datasource"}
    for text in [target["expr"] for _, target in targets(dashboard)]:
        used |= promql.variables(text)
    for variable in defined.values():
        used |= promql.variables(str(variable["query"]))
    yield from (f"${name} is used but not defined" for name in sorted(used - set(defined)))
    yield from (f"${name} is defined but not used" for name in sorted(set(defined) - used))


def target_names(dashboard: Tree) -> Iterator[str]:
    """A panel whose series have no label left to tell them apart shows one series for each of its queries: name it."""
    for panel in panels(dashboard):
        for target in panel.get("targets", []):
            several = len(panel["targets"]) > 1
            if (
                several
                and not promql.read(target["expr"]).labels - TARGET_LABELS
                and target["legendFormat"] == "__auto"
            ):
                yield f"{panel['title']}: query {target['refId']} has no name"


def dashboard_links(dashboard: Tree) -> Iterator[str]:
    """Each dashboard leads to all others, with the time and the choices that are shown."""
    wanted = {f"/d/{load_json(path)['uid']}" for path in DASHBOARDS} - {f"/d/{dashboard['uid']}"}
    found = {link["url"] for link in dashboard["links"]}
    yield from (f"no link to {url}" for url in sorted(wanted - found))
    yield from (f"a link to {url}, which is not there" for url in sorted(found - wanted))
    for link in dashboard["links"]:
        if not (link["includeVars"] and link["keepTime"]):
            yield f"the link to {link['url']} loses what was chosen"


def stat_thresholds(dashboard: Tree) -> Iterator[str]:
    """A single number has the colour of its meaning, whatever it is."""
    for panel in panels(dashboard):
        steps = panel["fieldConfig"]["defaults"].get("thresholds", {}).get("steps", [])
        if panel["type"] == "stat" and (not steps or steps[0]["value"] is not None):
            yield f"{panel['title']}: thresholds {steps}"


def legends(dashboard: Tree) -> Iterator[str]:
    """Graphs look alike: their legend is a table below them with the last and the highest value."""
    for panel in panels(dashboard):
        legend = panel["options"].get("legend", {})
        shown = legend.get("displayMode"), legend.get("placement"), legend.get("calcs")
        if panel["type"] == "timeseries" and shown != ("table", "bottom", ["lastNotNull", "max"]):
            yield f"{panel['title']}: legend {shown}"


def takeover_marks(dashboard: Tree) -> Iterator[str]:
    """Takeovers are marked on every graph, by a query of what is chosen."""
    own = [found for found in dashboard["annotations"]["list"] if not found.get("builtIn")]
    if [found["name"] for found in own] != ["Takeovers"]:
        yield f"marks {[found['name'] for found in own]}"
    for found in own:
        reading = promql.read(found["expr"])
        yield from (f"{found['name']}: {problem}" for problem in reading.problems)
        named = set(re.findall(r"\{\{(\w+)\}\}", found["textFormat"]))
        yield from (f"{found['name']} shows {label}, which is not there" for label in sorted(named - reading.labels))
        if promql.variables(found["expr"]) - set(_variables(dashboard)):
            yield f"{found['name']} uses a variable that is not defined"


RULES: tuple[Callable[[Tree], Iterator[str]], ...] = (
    template_datasource,
    template_job,
    template_instance,
    template_label_promql,
    template_on_time_change_reload,
    panel_datasource,
    panel_title_description,
    panel_units,
    panel_no_targets,
    target_promql,
    target_rate_interval,
    target_job,
    target_instance,
    target_counter_agg,
    uneditable_dashboard,
    identity,
    panel_ids,
    layout,
    shown_labels,
    used_variables,
    target_names,
    dashboard_links,
    stat_thresholds,
    legends,
    takeover_marks,
)
