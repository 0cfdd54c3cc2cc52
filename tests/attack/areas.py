"""The areas of the attack. per_hour: the aim for an hour on two cores."""

from __future__ import annotations

from attack import beside, core, faults, files, kills, models, power, talk
from attack.area import Area

AREAS: dict[str, Area] = {
    area.name: area
    for area in (
        Area("header", 100_000, models.attack_header, models.prepare, 20),
        Area("load", 2_000, models.attack_load, models.prepare, 120),
        Area("file", 40_000, files.attack, files.prepare),
        Area("state", 2_000, files.attack_state, files.prepare_states),
        Area("template", 10_000, talk.attack_template, limit_s=120),
        Area("request", 100_000, talk.attack_request, talk.prepare_server),
        Area("frame", 100_000, talk.attack_frame),
        Area("groups", 10_000, talk.attack_groups),
        Area("core", 10_000, core.attack),
        Area("beside", 400, beside.attack, limit_s=300),
        Area("kill", 9_700, kills.attack_writer, kills.prepare, 300),
        Area("engine", 45, kills.attack_engine, kills.prepare_engines, 900),
        Area("worker", 250, kills.attack_worker, kills.prepare_worker, 300),
        Area("window", 50, kills.attack_window, limit_s=600),
        Area("fault", 10_000, faults.attack, faults.prepare, 300),
        Area("power", 100, power.attack, power.prepare_hub, 300),
        Area("limit", 2_000, faults.attack_limits, faults.prepare, 300),
    )
}
