"""The HTML page of a report, one function per section."""

from __future__ import annotations

import json
import math
from base64 import b64encode
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

# `from .. import plots` would load all public names and thereby import this module again.
import marginalis.plots as plots

from ..display.page import definitions, machine, page, section, table
from ..display.words import decimals, escaped, method_name
from ..models import describe
from ..models.factors import FactorModel
from ..results.estimate import Estimate

if TYPE_CHECKING:
    from .report import Report


def page_of(report: Report) -> bytes:
    """Return the HTML page of a report, encoded."""
    parts = {
        "model": ("The model", _model),
        "bounds": ("Bounds from both sides", _bounds),
        "weights": ("The weights and their tail", _weights),
        "temperature": ("ln Z and heat capacity against temperature", _thermodynamics),
        "opinion": ("Second opinion", _opinion),
        "exact": ("Exact value", _exact),
        "likelihood": ("Likelihood of data", _likelihood),
        "provenance": ("Where it comes from, and how to repeat it", _provenance),
    }
    if report.estimate is None:  # All missing parts have the same reason, so it is given once.
        names = ("model", "exact", "likelihood", "provenance")
        parts = {"estimate": ("No estimate", lambda r: [f"<p>{escaped(r.missing['estimate'])}.</p>"])} | {
            name: part for name, part in parts.items() if name in names
        }
    links = "".join(f'<a href="#{name}">{escaped(title)}</a>' for name, (title, _) in parts.items())
    body = [section(name, title, *make(report)) for name, (title, make) in parts.items()]
    return page(f"Free energy of {report.title}", [_answer(report), f"<nav>{links}</nav>", *body])


def _answer(report: Report) -> str:
    """Return the first section: F, its uncertainty, and all answers on one axis."""
    e, exact = report.estimate, report.exact
    lines = [f'<header><p class="faint">Free energy F = −ln Z of</p><h1>{escaped(report.title)}</h1>']
    if exact is not None:
        lines.append(f'<p class="value">F = {-exact:.10g}</p>')
        n = report.model.n_variables
        facts = [escaped(exact.how), f"ln Z = {float(exact):.10g}", f"F/n = {-exact / max(1, n):.10g}, n = {n}"]
        if e is None:
            facts.append("no estimate was needed")
        lines.append(_facts(facts))
    if e is not None:
        digits, (low, high) = decimals(e.stderr), e.interval
        value = f"F = {e.free_energy:.{digits}f}" + (f" ± {e.stderr:.{digits}f}" if math.isfinite(e.stderr) else "")
        facts = [f"95 % interval {low:.{digits}f} to {high:.{digits}f}" if math.isfinite(high) else "error not known"]
        if exact is None:
            lines.append(f'<p class="value">{value}</p>')
            per_variable = f"F/n = {e.free_energy_per_variable:.{digits + 2}f}, n = {e.variables}"
            facts += [f"ln Z = {e.log_z:.{digits}f}", per_variable]
        else:
            facts = [f"estimate: {value}", *facts]
        lines.append(_facts(facts))
    elsewhere = {remark for remarks in report.remarks().values() for remark in remarks}
    doubts = [warning for warning in report.warnings if warning not in elsewhere]
    lines += _warnings(doubts)
    if not doubts:
        lines.append('<p class="fine">No warnings: all checks passed.</p>')
    if report.said():
        what = "All values of F, each with its 95 % interval; the broad bar extends between the bounds."
        exactly = None if exact is None else -float(exact)
        lines.append(_figure(lambda: plots.answers(report.said(), exact=exactly), what))
    return "\n".join([*lines, "</header>"])


def _facts(facts: Sequence[str]) -> str:
    return f'<ul class="facts">{"".join(f"<li>{fact}</li>" for fact in facts)}</ul>'


def _model(report: Report) -> list[str]:
    model = report.model
    if isinstance(model, FactorModel):
        facts: dict[str, Any] = {
            "variables": model.n_variables,
            "most states": max(model.cards, default=1),
            "factors": len(model.scopes),
            "largest factor": f"{model.largest_scope} variables",
            "forbidden states": "yes" if model.is_hard else "no",
        }
        if report.estimate is not None:
            facts["summed out"] = f"{describe.count(report.summed_out, 'variable')}, at every step"
        return [definitions(facts), "<p>Models of factors are not drawn.</p>"]
    facts = describe.lines(model) | {"summed out": f"{describe.count(report.summed_out, 'variable')}, at every step"}
    figures = []
    if (facts["couplings"], facts["fields"]) != ("none", "none"):
        figures.append(_figure(lambda: plots.couplings(model), "How strong couplings and fields are."))
    try:
        plots.pictures.check_size(model)
        what = "The model. Blue lines favour equal states, red ones opposite states; wider is stronger."
        if not plots.pictures.is_graph(model):
            what = "The couplings as a matrix."
        figures.append(_figure(lambda: plots.model(model), what))
    except ValueError as error:
        figures.append(f"<p>No picture: {escaped(str(error))}.</p>")
    return [definitions(facts), f'<div class="figures">{"".join(figures)}</div>']


def _bounds(report: Report) -> list[str]:
    b = report.bounds
    assert b is not None
    digits = decimals(b.stderr)
    sure = "" if b.is_certified else " (if the reverse chains start at equilibrium, which is not known)"
    text = (
        f"With probability at least {b.confidence:g}{sure}, {b.lower:.{digits}f} ≤ F ≤ {b.upper:.{digits}f}: the "
        "forward chains bound F from above, chains that run back from samples of the model bound it from below "
        "(Markov's inequality: no assumption about the weights)."
    )
    facts = {
        "forward chains": f"{b.chains}, F = {b.forward.free_energy:.{digits}f}",
        "reverse chains": f"{len(b.reverse_log_weights)}, F = {b.reverse_free_energy:.{digits}f}",
        "reverse start": b.samples,
    }
    if b.is_two_sided:
        facts["both (Bennett)"] = f"F = {b.free_energy:.{digits}f} ± {_number(b.stderr, digits)}"
        facts["overlap"] = f"{b.overlap:.1f} effective chains"
    what = "Work of both directions: the histograms cross at F."
    figure = _figure(lambda: plots.works(b, exact=_exact_f(report)), what)
    return [f"<p>{escaped(text)}</p>", *_warnings(report.remarks()["bounds"]), definitions(facts), figure]


def _weights(report: Report) -> list[str]:
    e = report.estimate
    assert e is not None
    k = e.tail_index
    tail = "too few or too equal weights for a fit"
    if math.isfinite(k):
        tail = f"k = {k:.2f} (below 0.5: errors can be trusted; above 0.7: they cannot)"
    unit = e.ess_of
    facts = {
        unit: len(e.log_weights),
        f"effective {unit}": f"{e.ess:.1f}",
        "spread of log-weights": f"{float(e.log_weights.std()):.3g}",
        "tail of the weights": tail,
    }
    exact = _exact_f(report)
    one = _figure(
        lambda: plots.weights(e, exact=exact), f"Log-weights of the {unit}. Few {unit} on the right decide the mean."
    )
    two = _figure(
        lambda: plots.running(e, exact=exact), f"F against the number of {unit} used: it should have converged."
    )
    return [definitions(facts), f'<div class="figures">{one}{two}</div>']


def _thermodynamics(report: Report) -> list[str]:
    t = report.thermodynamics
    if t is None:
        return [f"<p>Not there: {escaped(report.missing['thermodynamics'])}.</p>"]
    text = (
        "One run from infinite temperature (β = 0) down to the temperature of the model, the largest β here; energies "
        "are averaged over moves at every β."
    )
    rows = [
        {
            "β": row["beta"],
            "T": 1.0 / row["beta"],
            "ln Z": row["log_z"],
            "energy": row["energy"],
            "entropy": row["entropy"],
            "heat capacity": row["heat_capacity"],
            "effective chains": f"{row['ess']:.0f}",
        }
        for row in t.rows()
    ]
    figure = _figure(
        lambda: plots.heat(t, exact=report.exact_curve),
        "ln Z and heat capacity per variable; bars are two standard errors.",
    )
    remarks = _warnings(report.remarks()["temperature"])
    return [f"<p>{text}</p>", *remarks, figure, f"<details><summary>The numbers</summary>{table(rows)}</details>"]


def _opinion(report: Report) -> list[str]:
    e = report.estimate
    assert e is not None
    rows = []
    for name, (value, low, high) in report.said().items():
        digits = decimals((high - low) / 4.0)
        off = "" if report.exact is None or math.isnan(value) else f"{value + float(report.exact):+.{digits}f}"
        row = {"way": name, "F": "" if math.isnan(value) else f"{value:.{digits}f}"}
        row |= {"from": _number(low, digits), "to": _number(high, digits)}
        rows.append(row if report.exact is None else row | {"minus exact F": off})
    paragraphs = [
        f"The estimate took the path from the base “{e.base}” ({method_name(e.method)}, {e.record}). "
        "Ẑ is unbiased along every path, and a path that misses a part of the states gives a larger F than one that "
        "does not: if two values disagree, the lower F is more likely to be right."
    ]
    notes = _warnings(e.notes)
    if not report.was_free:
        paragraphs.append(
            "Steps, schedule or base were given, so no other path was tried. Without them, several paths are compared."
        )
    elif not notes:
        paragraphs.append("Short trial runs along other paths have not found a larger Z than this one.")
    return [*(f"<p>{escaped(text)}</p>" for text in paragraphs), *notes, table(rows)]


def _exact(report: Report) -> list[str]:
    if report.exact is None:
        return [f"<p>Not computed: {escaped(report.missing['exact'])}.</p>"]
    facts = {
        "F": f"{-report.exact:.12g}",
        "ln Z": f"{report.exact:.12g}",
        "log10 Z": f"{report.exact / math.log(10):.12g}",
    }
    facts |= {"method": report.exact.method, "seconds": f"{report.exact.seconds:.2f}"}
    e = report.estimate
    if e is not None and 0.0 < e.stderr < math.inf:
        z = (e.free_energy + float(report.exact)) / e.stderr
        facts["estimate minus exact"] = f"{e.free_energy + float(report.exact):+.2g}, {z:+.1f} standard errors"
    return [definitions(facts)]


def _likelihood(report: Report) -> list[str]:
    found = report.likelihood
    if found is None:
        return ["<p>No data were given: <code>--data rows.npy</code> adds the mean ln p of rows of visible units.</p>"]
    low, high = found.interval
    facts = {
        "mean ln p": f"{found.mean:.4f}"
        + ("" if low == high else f" (95 % interval from ln Z alone {low:.4f} to {high:.4f})"),
        "rows": found.samples,
        "sampling error of the mean": _number(found.sampling_error, 4),
        "ln Z": f"{found.log_z:.4f}, {'exact' if report.exact is not None else found.log_z_source}",
    }
    return [definitions(facts), _figure(lambda: plots.likelihood(found), "ln p of the rows, and its mean.")]


def _provenance(report: Report) -> list[str]:
    parts = [f"<pre>{escaped(report.command)}</pre>"]
    if report.estimate is not None:
        parts.append(definitions(_record(report.estimate)))
    parts.append(definitions(machine()))
    data = b64encode(json.dumps(report.to_dict(), allow_nan=False).encode()).decode()
    link = f'<a download="report.json" href="data:application/json;base64,{data}">All numbers as JSON</a>'
    return [*parts, f"<p>{link}</p>"]


def _record(e: Estimate) -> dict[str, Any]:
    plain = e.record.to_dict()
    runs = ", ".join(f"seed {seed}: chains {first} to {first + count - 1}" for seed, first, count in plain.pop("runs"))
    names = {"model": "digest of the model", "version": "marginalis"}
    return {names.get(k, k): f"{v:.2f}" if isinstance(v, float) else v for k, v in plain.items()} | {"runs": runs}


def _figure(draw: Callable[[], Any], caption: str) -> str:
    """Return a figure in the colours of the page, or the reason why it cannot be drawn."""
    try:
        picture = plots.inline_svg(draw)
    except ValueError as error:  # Matplotlib is not installed.
        return f"<p>No figure: {escaped(str(error))}.</p>"
    return f"<figure>{picture}<figcaption>{escaped(caption)}</figcaption></figure>"


def _warnings(warnings: Sequence[str]) -> list[str]:
    return [f'<p class="warning">⚠ {escaped(warning)}</p>' for warning in warnings]


def _exact_f(report: Report) -> float | None:
    return None if report.exact is None else -float(report.exact)


def _number(x: float, digits: int) -> str:
    return f"{x:.{digits}f}" if math.isfinite(x) else "unknown"
