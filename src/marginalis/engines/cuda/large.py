"""Large dense models of spins on two independent sides, for the kernels in `resident.cu` and `streamed.cu`."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ...checks import Array
from ...gpu.device import Device
from ...random import MIXTURE, uniforms
from ..plan import Plan
from ..reference.loop import Distributions as Reference
from ..reference.loop import never_one
from . import resident
from .population import OnDevice, Prepared, prepared

SOURCE = Path(__file__).with_name("large.cu")
RESIDENT, STREAMED = ([SOURCE, SOURCE.with_name(name)] for name in ("resident.cu", "streamed.cu"))
_UNITS, _INPUTS = 64, 32  # Units of a block; inputs of one matrix product, which is also the number of units of a warp.
# Chains of a block, chains of a warp in units of 16, and blocks per multiprocessor, for many chains and for few.
_MANY, _FEW = (128, 2, 2), (64, 1, 2)
_STAGES = 4 * 2 * 2 * 6 * 32 * 16  # Bytes of weights in shared memory.
_MOST_WORDS = 92  # Largest number of words of a chain's spins that fits into shared memory beside the weights.
_MOST_NUMBER = 8_300_000  # Slightly below the largest number in three signed bytes.
_FULL = 100  # A coupling in a list costs as much as this many in a dense matrix, so sparser models use other kernels.
_ANY: dict[str, object] = {"ROWS": 64, "HALVES": 2, "BLOCKS": 1, "SUMMED": 0}  # For kernels that use none of these.
_SPAN = 20  # Steps that are launched together as one graph.
_SECONDS = 1.2e-14  # Approximate time per chain, step and coupling.
_MOST_COMPONENTS = 256  # Largest number of components of a mixture, whose exponents lie in shared memory.


class HalfStep(NamedTuple):
    """Half a step: the weights into a side, and its units, on the GPU."""

    words: int  # Words of spins of the side that is read.
    out_words: int  # Words of spins of the side that is drawn.
    tiles: int  # Groups of 64 units, or of 64 components of a mixture.
    units: int
    weights: tuple[Any, Any]  # The packed weights, and their bands.
    columns: tuple[Any, ...]  # Scale, slope, base, high, low, and the number of units.
    bands: NDArray[np.int32]  # Bands of each 32 units, on the host.


class Mixed(NamedTuple):
    """A mixture at the start of the path, whose component is drawn, on the GPU."""

    draw: HalfStep  # The fields of the components on the summed-out side, as weights into the components.
    fields: tuple[Any, np.int32]  # The fields on the sampled side, [component][unit], and the distance of components.
    hidden: tuple[Any, np.int32]  # The same on the summed-out side.
    exponents: Any

    @property
    def pitch(self) -> int:
        """Distance between chains of stored exponents."""
        return _UNITS * self.draw.tiles


class LargeLayout(NamedTuple):
    """A plan as arguments of the kernels."""

    up: HalfStep
    down: HalfStep
    macros: dict[str, object]
    unit: np.float32  # Factor by which changes of log-weights are multiplied before they are rounded.
    unit_v: np.float32  # The same factor for the slope of the visible side.
    mixed: Mixed | None  # The mixture at the start of the path.


def serves(plan: Plan) -> bool:
    """Whether the kernel supports a plan."""
    model, base = plan.path.end, plan.path.start
    if model.spin_form is None or not model.is_bipartite or base.is_coupled:
        return False
    mixture = plan.path.mixture
    if mixture is not None and (
        not mixture.is_drawn
        or mixture.drawn_last
        or mixture.components > _MOST_COMPONENTS
        or sp.issparse(model.weights)
    ):
        return False
    n, m = model.n_visible, model.n_hidden
    if (
        plan.move.kind != "gibbs"
        or plan.placement.precision != "single"
        or not (min(n, m) > 0 and max(n, m) <= 32 * _MOST_WORDS)
    ):
        return False
    w = model.weights
    return not sp.issparse(w) or _band_area(w) + _band_area(w.T) <= 2 * _FULL * w.nnz


def _bands(weights: Any, width: int) -> NDArray[np.int32]:
    """Return the range of groups of 32 inputs that are not zero, per `width` units; of even length for 64 units."""
    n, m = weights.shape
    rows, columns = sp.coo_array(weights).coords if sp.issparse(weights) else np.nonzero(weights)
    filled = np.zeros((-(-n // _INPUTS), -(-m // width)), dtype=bool)
    filled[rows // _INPUTS, columns // width] = True
    some = filled.any(axis=0)
    first = np.where(some, filled.argmax(axis=0), 0)
    last = np.where(some, len(filled) - filled[::-1].argmax(axis=0), 0)
    if width == _UNITS:
        first, last = first // 2 * 2, (last + 1) // 2 * 2
    return np.stack([first, last], axis=1).astype(np.int32)


def _band_area(weights: Any) -> int:
    bands = _bands(weights, _UNITS)
    return _INPUTS * _UNITS * int((bands[:, 1] - bands[:, 0]).sum())


def pack(weights: Array) -> tuple[NDArray[np.int8], Array, NDArray[np.int32], NDArray[np.int32]]:
    """Return weights [input, unit] as three bytes each in the kernel's order, their scales, and two sums over inputs.

    A weight is (65536·d2 + 256·d1 + d0)·scale with signed bytes d. The sums are those of 256·d2 + d1 and of d0. The
    numbers of inputs and units must be multiples of the tile size.
    """
    inputs, units = weights.shape
    largest = np.abs(weights).max(axis=0, initial=0.0)
    scale = np.exp2(-np.floor(np.log2(_MOST_NUMBER / np.where(largest > 0.0, largest, 1.0))))
    whole = np.rint(weights / scale).astype(np.int64)
    low = (whole + 128) % 256 - 128
    rest = (whole - low) // 256
    middle = (rest + 128) % 256 - 128
    digits = np.stack([low, middle, (rest - middle) // 256]).astype(np.int8)
    lane = np.arange(32)
    g, q = lane // 4, lane % 4
    k = 8 * np.arange(4) + q[:, None, None] + 4 * np.arange(2)[:, None]  # [lane, register, byte]
    j = np.arange(8)[:, None]
    column = 32 * (j // 4) + 8 * (g // 2) + 2 * (j % 4) + g % 2  # [eight columns, lane]
    cut = digits.reshape(3, inputs // _INPUTS, _INPUTS, units // _UNITS, _UNITS)
    picked = cut[:, :, k[None], :, column[:, :, None, None]]
    # Advanced indices come first: [eight columns, lane, register, place, byte, group, tile].
    in_order = picked.transpose(6, 5, 0, 4, 1, 2, 3)
    # Two products are interleaved: [tile, group, warp, two products, lane, product, register, place].
    twos = in_order.reshape(*in_order.shape[:2], 2, 6, 2, 32, 2, 4).swapaxes(4, 5)
    return np.ascontiguousarray(twos), scale, rest.sum(axis=0).astype(np.int32), low.sum(axis=0).astype(np.int32)


def _half(device: Device, weights: Array, slope: Array, base: Array, fields: Array | None = None) -> HalfStep:
    """Return half a step; `fields` are those of the components of a mixture on the inputs, [component, input]."""
    inputs, units = weights.shape
    padded = np.pad(weights, ((0, -inputs % _UNITS), (0, -units % _UNITS)))
    out_words, bands = padded.shape[1] // _INPUTS, _bands(weights, _INPUTS)
    if fields is not None:
        more = np.pad(fields.T, ((0, -inputs % _UNITS), (0, -len(fields) % _UNITS)))
        padded = np.concatenate([padded, more], axis=1)
    packed, scale, high, low = pack(padded)
    own = [np.pad(x, (0, padded.shape[1] - units)) + 0.0 for x in (slope, base)]
    columns = [x.astype(np.float32) for x in (scale, *own)] + [high, low]
    uploaded = device.upload(packed), device.upload(_bands(padded, _UNITS))
    return HalfStep(
        len(padded) // _INPUTS, out_words, padded.shape[1] // _UNITS, units, uploaded,
        (*(device.upload(x) for x in columns), np.int32(units)), bands,
    )  # fmt: skip


def _fields(device: Device, fields: Array) -> tuple[Any, np.int32]:
    """Return fields [component, unit] on the GPU, padded to whole tiles, and the distance between components."""
    padded = np.pad(fields, ((0, 0), (0, -fields.shape[1] % _UNITS))).astype(np.float32)
    return device.upload(padded), np.int32(padded.shape[1])


def _unit(most: float) -> np.float32:
    """Return the power of 2 by which to multiply numbers up to `most` before rounding, so that sums of 32 fit."""
    return np.float32(2.0 ** math.floor(25 - math.log2(max(most, 1e-30))))


class Population(OnDevice):
    """Chains whose spins are stored as bits of words, [chain, word]."""

    def __init__(self, plan: Plan, prepared: Prepared, chains: range) -> None:
        super().__init__(plan, prepared, chains)
        layout: LargeLayout = prepared.layout
        device, n = self.device, len(chains)
        up, down = layout.up, layout.down
        self.groups: resident.Groups | None = None
        if layout.mixed is None:
            work = (up.bands, down.bands), n, device.multiprocessors, device.shared_bytes
            self.groups = resident.groups(*work, device.has_warpgroups) or resident.groups(*work, False)
        self.half_steps = 0  # Number of half steps taken.
        if self.groups is None:
            self.words, self.rows = (up.words, down.words), n
        else:
            self.words, parts = self.groups.words, -(-n // self.groups.rows)
            self.rows = parts * self.groups.rows
            self.shares = [device.upload(x) for x in self.groups.shares]
            self.arrived = device.zeros((parts,), np.uint32)
        self.v, self.h = (device.zeros((self.rows, words), np.uint32) for words in self.words)
        self.gained = device.zeros((len(self.both), n), np.int64)
        self.rises = device.zeros((2, n), np.int64)
        self.clock = device.zeros((1,), np.int32)
        self.again: Callable[[], None] | None = None  # Launches _SPAN steps as a graph.
        self.component: Any = None  # Component of a mixture of each chain, with padding.
        if layout.mixed is not None:
            self.component = device.upload(np.pad(self._components(), (0, _MANY[0])))
            self.logits = device.zeros((n, layout.mixed.pitch), np.float32)
        if plan.chains.start is not None:
            rows = self.in_kernel_units(plan.chains.start[chains.start : chains.stop])[:n]
            padded = np.pad(rows > 0, ((0, self.rows - n), (0, _INPUTS * self.words[0] - rows.shape[1])))
            bits = np.packbits(padded, axis=1, bitorder="little")
            self.v, self.fresh = device.upload(bits.view(np.uint32)), 2

    @staticmethod
    def prepare(plan: Plan, device: Device) -> Prepared:
        """Convert a plan to the arguments of the kernel."""
        path = plan.path.spins
        weights = path.weights.toarray() if sp.issparse(path.weights) else path.weights
        fields, hidden, exponents = path.component_fields, path.component_hidden, path.component_weights
        up = _half(device, weights, path.slope_h, path.base_h, fields)
        down = _half(device, weights.T, path.slope_v, path.base_v)
        slopes_v, slopes_h = np.abs(path.slope_v), np.abs(path.slope_h)
        macros: dict[str, object] = {
            "JOINT": 1 if plan.method == "ais" else None,
            "BASE": None if plan.path.start.is_uniform else 1,
        }
        size, mixed, entries = 4 * (up.words + down.words) + 64, None, weights.size
        if fields is not None and hidden is not None and exponents is not None:
            slopes_v, slopes_h = slopes_v + np.abs(fields).max(axis=0), slopes_h + np.abs(hidden).max(axis=0)
            assert plan.path.mixture is not None
            draw = _half(device, hidden.T, exponents - exponents.mean(), plan.path.mixture.log_kept)
            of_both = _fields(device, fields), _fields(device, hidden)
            mixed = Mixed(draw, *of_both, device.upload(np.asarray(exponents, np.float64)))
            macros |= {"BASE": 1, "DRAWN": 1}
            size, entries = size + 4 * mixed.pitch + 4, entries + fields.size + hidden.size
        reach = float((slopes_h + np.abs(weights).sum(axis=0)).max())
        most = float(np.abs(np.diff(plan.betas)).max()) * reach, float(slopes_v.max())
        layout = LargeLayout(up, down, macros, _unit(most[0]), _unit(most[1]), mixed)
        return prepared(plan, device, path, size, _SECONDS * (entries + 1e5), layout)

    def _components(self) -> NDArray[np.int32]:
        """Return the component of the mixture that each chain starts in."""
        plan, of = self.plan, slice(self.chains.start, self.chains.stop)
        mixture, natural = plan.path.mixture, plan.path.end.natural
        assert mixture is not None
        if plan.chains.start is None:
            choice = uniforms(plan.chains.seed, plan.chains.numbers[of], 0, MIXTURE, 1)[:, 0]
            z = mixture.start(natural.visible_units, natural.hidden_units, choice)
        else:
            reference = Reference(plan, self.chains)
            reference.start_from(never_one(plan.chains.start[of]))
            assert reference.z is not None
            z = reference.z[: len(self.chains)]
        return z.astype(np.int32)

    def launch(self, to_step: int) -> None:
        """Launch the kernels for the steps up to `to_step`."""
        layout, n = self.prepared.layout, len(self.chains)
        if self.fresh:
            macros = _ANY if layout.mixed is None else _ANY | {"DRAWN": 1}
            start, down, address = self.device.kernel(STREAMED, macros, "start"), layout.down, self.prepared.address
            start(
                -(-n // 128), 128, 0, self.v, np.int32(self.words[0]), np.int32(down.units), *down.columns[1:3],
                *address[:21], self.first, np.int32(n), np.int32(self.step), np.int32(self.fresh == 1),
                layout.unit_v, self.rises, *self._of_mixture(0),
            )  # fmt: skip
        if self.groups is not None:
            self._in_groups(self.groups, to_step)
            return
        halves = self._halves()
        k, moves = self.step, min(to_step, self.plan.steps - 1)  # The last step has no move.
        spans = (moves - k) // _SPAN
        if spans > 1:  # Launching a recorded graph is cheaper than single kernels.
            set_clock = self.device.kernel(STREAMED, _ANY, "set_clock")
            set_clock(1, 1, 0, self.clock, np.int32(0), np.int32(k))
            if self.again is None:
                clock = self.clock  # A local name, so that the graph holds no reference to the population.

                def span() -> None:
                    for ahead in range(1, _SPAN + 1):
                        for half in halves:
                            half(clock, np.int32(ahead))
                    set_clock(1, 1, 0, clock, np.int32(_SPAN), np.int32(0))

                self.again = self.device.repeated(span)
            for _ in range(spans):
                self.again()
            k += spans * _SPAN
        for step in range(k + 1, to_step + 1):
            for half in halves if step < self.plan.steps else halves[:1]:
                half(None, np.int32(step))

    def _of_mixture(self, summed: int) -> tuple[Any, ...]:
        """Return the arguments of kernels on the mixture, if there is one, for one side."""
        mixed: Mixed | None = self.prepared.layout.mixed
        if mixed is None:
            return ()
        return *(mixed.hidden if summed else mixed.fields), self.component, mixed.exponents

    def _sums(self) -> tuple[Any, ...]:
        """Return the arguments to which the kernels add, with their units."""
        layout = self.prepared.layout
        gained = self.gained[0], None if self.joint is None else self.gained[1]
        sums = *gained, self.rises, self.weights, self.joint
        return layout.unit, layout.unit_v, *sums, np.int32(len(self.chains))

    def _in_groups(self, groups: resident.Groups, to_step: int) -> None:
        """Launch all steps as one kernel."""
        layout, prepared, last = self.prepared.layout, self.prepared, self.plan.steps
        up, down, sides = layout.up, layout.down, prepared.address[20:]
        kernel = self.device.kernel(RESIDENT, {**layout.macros, **groups.macros}, "steps", at_once=True)
        most = (np.int32(x.shape[1]) for x in groups.shares)
        kernel(
            groups.number * groups.size, groups.teams * groups.team, groups.shared, self.v, self.h,
            *map(np.int32, self.words), up.weights[0], np.int32(up.words), down.weights[0], np.int32(down.words),
            *up.columns, sides[1], *down.columns, sides[0], *self.shares, *most,
            np.int32(groups.inside), np.int32(groups.size), prepared.betas, prepared.differences,
            *prepared.address[:20], self.first, *self._sums(), np.int32(self.step), np.int32(to_step), np.int32(last),
            self.arrived, np.uint32(self.half_steps),
        )  # fmt: skip
        self.half_steps += 2 * (to_step - self.step)

    def _halves(self) -> list[Callable[[Any, np.int32], None]]:
        """Return functions that launch the parts of the step with number clock + ahead."""
        layout, prepared, n = self.prepared.layout, self.prepared, len(self.chains)
        keys, sides = prepared.address[:20], prepared.address[20:]

        def half(summed: int, of: HalfStep, read: Any, drawn: Any, side: np.uint32) -> Any:
            few = -(-n // _MANY[0]) * of.tiles < self.device.multiprocessors  # Smaller blocks use more of them.
            rows, halves, together = _FEW if few else _MANY
            cut = {"ROWS": rows, "HALVES": halves, "BLOCKS": together, "SUMMED": summed}
            kernel = self.device.kernel(STREAMED, {**layout.macros, **cut}, "half_step")
            shared = _STAGES + 4 * rows * (of.words | 1)
            fixed = (
                read, np.int32(of.words), drawn, np.int32(of.out_words), *of.weights, *of.columns, side,
                prepared.betas, prepared.differences, *keys, self.first, *self._sums(),
            )  # fmt: skip
            of_mixture = self._of_mixture(summed)
            if of_mixture:
                of_mixture += self.logits, np.int32(self.logits.shape[1])
            blocks = -(-n // rows), of.tiles
            return lambda clock, ahead: kernel(blocks, 4 * rows // halves, shared, *fixed, clock, ahead, *of_mixture)

        up = half(1, layout.up, self.v, self.h, sides[1])
        down = half(0, layout.down, self.h, self.v, sides[0])
        return [up, down] if layout.mixed is None else [up, self._draw_component(layout.mixed), down]

    def _draw_component(self, mixed: Mixed) -> Callable[[Any, np.int32], None]:
        """Return a function that launches the draw of the components in the step with number clock + ahead."""
        layout, prepared, n = self.prepared.layout, self.prepared, len(self.chains)
        rows = 64 if n >= 64 * self.device.multiprocessors else 32
        cut = {"ROWS": rows, "HALVES": 1, "BLOCKS": 1, "SUMMED": 0}
        kernel = self.device.kernel(STREAMED, {**layout.macros, **cut}, "draw_component")
        shared = _STAGES + 4 * rows * ((mixed.draw.words | 1) + (mixed.pitch | 1))
        fixed = (
            self.h, np.int32(mixed.draw.words), *mixed.draw.weights, *mixed.draw.columns, np.uint32(MIXTURE),
            prepared.betas, *prepared.address[:20], self.first, np.int32(n), self.component, self.logits,
            np.int32(mixed.pitch),
        )  # fmt: skip
        return lambda clock, ahead: kernel(-(-n // rows), 4 * rows, shared, *fixed, clock, ahead)

    def fetched_weights(self) -> Array:
        """Return the sums of the kernel plus the constants, [method, chain]."""
        return super().fetched_weights() + self.device.download(self.gained) / float(self.prepared.layout.unit)

    def kernel_states(self) -> Array:
        """Return the states of the sampled side, [chain, unit]."""
        words = self.device.download(self.v)[: len(self.chains)]
        units = self.prepared.layout.down.units
        bits = np.unpackbits(words.view(np.uint8), axis=1, count=units, bitorder="little")
        return 2.0 * bits.astype(np.float64) - 1.0

    def choose(self, ancestors: NDArray[np.int64]) -> None:
        """Continue chain i from the state of chain ``ancestors[i]``; the log-weights do not move."""
        padded = np.pad(ancestors, (0, self.rows - len(ancestors)))
        self.v, self.fresh, self.again = self.device.take(self.v, padded, 0), 2, None
        if self.component is not None:
            self.component = self.device.take(self.component, np.pad(ancestors, (0, _MANY[0])), 0)
