"""Weighted sums of spins from look-up tables, for sixteen chains at once and four spins at a time.

Four spins have sixteen sums ±w0 ±w1 ±w2 ±w3 with four weights. These fit into one register, and one permute selects
the sum of every chain; the index is the four spins as bits (bit 3 is the first spin, and 1 is down). Weights and sums
are integers of 32 bits, so a sum does not depend on the order of its terms.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from .compiling import intrinsic
from .vector import ALIGNMENT, LANES, Vector, broadcast, call, float_format

SPINS = 4  # Number of spins of a table of LANES entries.
COLUMNS = 4  # Sums over the same spins that are computed side by side.
_I32 = ir.IntType(32)
_WORDS = ir.VectorType(_I32, LANES)


@intrinsic
def table_of(typingctx: Any, up: Any, w0: Any, w1: Any, w2: Any, w3: Any) -> Any:
    """Return the sums for every index: `up` is that of four spins up, and w0 … w3 are the changes for spins down."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        total = broadcast(builder, args[0])
        for bit, w in zip((8, 4, 2, 1), args[1:], strict=True):
            down = ir.Constant(ir.VectorType(ir.IntType(1), LANES), [bool(i & bit) for i in range(LANES)])
            total = builder.select(down, builder.add(total, broadcast(builder, w)), total)
        return total

    return Vector(types.uint32)(up, w0, w1, w2, w3), emit


def lookups(blocks: int) -> Any:
    """Return a function that adds up table entries for `blocks` blocks of chains side by side."""

    @intrinsic
    def add_up(typingctx: Any, tables: Any, at: Any, count: Any, index: Any, first: Any, step: Any, sums: Any,
               into: Any, stride: Any, more: Any) -> Any:  # fmt: skip
        """Add the entries at the given indices of `count` tables to each of COLUMNS sums, for every block of chains.

        The tables [table][column] start at `at`, the indices [table] of block b at first + b·step, and its sums
        [column] at into + b·stride. The sums start from zero unless `more` is true.
        """

        def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            data = [context.make_array(sig.args[i])(context, builder, args[i]).data for i in (0, 3, 6)]
            at, count, first, step, into, stride = (
                context.cast(builder, args[i], sig.args[i], types.intp) for i in (1, 2, 4, 5, 7, 8)
            )

            def vector(array: Any, position: Any) -> Any:
                return builder.bitcast(builder.gep(array, [position], source_etype=_I32), _WORDS.as_pointer())

            def plus(position: Any, block: int, step: Any, more: int = 0) -> Any:
                shifted = builder.add(position, builder.mul(step, ir.Constant(position.type, block)))
                return builder.add(shifted, ir.Constant(position.type, more * LANES))

            places = [(b, c) for b in range(blocks) for c in range(COLUMNS)]
            totals = {place: cgutils.alloca_once(builder, _WORDS) for place in places}
            with builder.if_else(args[9]) as (then, otherwise):
                with then:
                    for b, c in places:
                        there = vector(data[2], plus(into, b, stride, c))
                        builder.store(builder.load(there, align=ALIGNMENT, typ=_WORDS), totals[b, c])
                with otherwise:
                    for place in places:
                        builder.store(ir.Constant(_WORDS, None), totals[place])
            lanes = ir.Constant(at.type, LANES)
            with cgutils.for_range(builder, count, intp=at.type) as loop:
                here = builder.mul(loop.index, lanes)
                found = [
                    builder.load(vector(data[1], builder.add(plus(first, b, step), here)), align=ALIGNMENT, typ=_WORDS)
                    for b in range(blocks)
                ]
                line = builder.add(at, builder.mul(here, ir.Constant(at.type, COLUMNS)))
                for c in range(COLUMNS):
                    table = builder.load(vector(data[0], plus(line, 0, at, c)), align=ALIGNMENT, typ=_WORDS)
                    for b in range(blocks):
                        total = builder.load(totals[b, c], typ=_WORDS)
                        builder.store(builder.add(total, _permute(builder, table, found[b])), totals[b, c])
            for b, c in places:
                there = vector(data[2], plus(into, b, stride, c))
                builder.store(builder.load(totals[b, c], typ=_WORDS), there, align=ALIGNMENT)
            return context.get_dummy_value()

        return types.void(tables, at, count, index, first, step, sums, into, stride, more), emit

    return add_up


def _permute(builder: Any, table: Any, index: Any) -> Any:
    kind = ir.FunctionType(_WORDS, [_WORDS, _WORDS])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.avx512.permvar.si.512")
    return builder.call(function, (table, index))


@intrinsic
def looked_up(typingctx: Any, table: Any, index: Any) -> Any:
    """Return each lane's entry of a table of LANES words or bytes; indices are below LANES and of the same type."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        if table.elem == types.uint32:
            return _permute(builder, *args)
        kind = ir.FunctionType(args[0].type, [args[0].type] * 2)
        shuffle = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.ssse3.pshuf.b.128")
        return builder.call(shuffle, args)

    return table(table, index), emit


@intrinsic
def entry_of(typingctx: Any, table: Any, at: Any, registers: Any, index: Any) -> Any:
    """Return each lane's entry of a table of numbers that fills `registers` registers, from position `at`."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind = ir.FloatType() if table.dtype == types.float32 else _I32
        data = context.make_array(sig.args[0])(context, builder, args[0]).data
        at, registers = (context.cast(builder, args[i], sig.args[i], types.intp) for i in (1, 2))
        found = cgutils.alloca_once_value(builder, ir.Constant(_WORDS, None))
        register_of = builder.lshr(args[3], ir.Constant(_WORDS, [LANES.bit_length() - 1] * LANES))
        with cgutils.for_range(builder, registers, intp=at.type) as loop:
            here = builder.add(at, builder.mul(loop.index, ir.Constant(at.type, LANES)))
            place = builder.bitcast(builder.gep(data, [here], source_etype=kind), _WORDS.as_pointer())
            entry = _permute(builder, builder.load(place, align=ALIGNMENT, typ=_WORDS), args[3])
            mine = builder.icmp_unsigned("==", register_of, broadcast(builder, builder.trunc(loop.index, _I32)))
            builder.store(builder.select(mine, entry, builder.load(found, typ=_WORDS)), found)
        return builder.bitcast(builder.load(found, typ=_WORDS), ir.VectorType(kind, LANES))

    return Vector(table.dtype)(table, at, registers, index), emit


@intrinsic
def gathered(typingctx: Any, table: Any, at: Any, index: Any) -> Any:
    """Return each lane's entry of a table of floats, at the position `at` + index, which must be below 2^31."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind = ir.DoubleType() if table.dtype == types.float64 else ir.FloatType()
        data = context.make_array(sig.args[0])(context, builder, args[0]).data
        start = builder.gep(data, [context.cast(builder, args[1], sig.args[1], types.intp)], source_etype=kind)
        found = ir.Constant(ir.VectorType(kind, LANES), ir.Undefined)
        for lane in range(LANES):
            place = builder.zext(builder.extract_element(args[2], _I32(lane)), ir.IntType(64))
            entry = builder.load(builder.gep(start, [place], source_etype=kind), typ=kind)
            found = builder.insert_element(found, entry, _I32(lane))
        return found

    return Vector(table.dtype)(table, at, index), emit


def row_width(numbers: int) -> int:
    """Return the length to which the rows of `row_sums` are padded."""
    return next(width for width in (4, 8, LANES * -(-numbers // LANES)) if numbers <= width)


@intrinsic
def row_sums(typingctx: Any, values: Any, tables: Any, first: Any, last: Any, rows: Any, numbers: Any,
             out: Any, at: Any) -> Any:  # fmt: skip
    """Add up rows of tables, different ones in each lane, into `out` from position `at`, [number][lane].

    The tables from `first` to `last` begin in the values where `tables` tells, and the position of a row in its table
    is rows[table − first][lane]. A row has `numbers` numbers and is padded to `row_width`, and so is the result.
    """

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        arrays = [_data(context, builder, sig, args, i) for i in (0, 1, 4, 6)]
        first, last, numbers, at = _positions(context, builder, sig, args, (2, 3, 5, 7))
        _sum_rows(builder, values.dtype, arrays[:3], first, [(last, arrays[3])], numbers, at)
        return context.get_dummy_value()

    return types.void(values, tables, first, last, rows, numbers, out, at), emit


@intrinsic
def row_sums_in_two(typingctx: Any, values: Any, tables: Any, first: Any, middle: Any, last: Any, rows: Any,
                    numbers: Any, part: Any, out: Any, at: Any) -> Any:  # fmt: skip
    """Add up rows as `row_sums` does; the sums over the tables from `first` to `middle` are written to `part`."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        arrays = [_data(context, builder, sig, args, i) for i in (0, 1, 5, 7, 8)]
        first, middle, last, numbers, at = _positions(context, builder, sig, args, (2, 3, 4, 6, 9))
        pieces = [(middle, arrays[3]), (last, arrays[4])]
        _sum_rows(builder, values.dtype, arrays[:3], first, pieces, numbers, at)
        return context.get_dummy_value()

    return types.void(values, tables, first, middle, last, rows, numbers, part, out, at), emit


def _data(context: Any, builder: Any, sig: Any, args: Any, i: int) -> Any:
    """Return a pointer to the elements of an argument that is an array."""
    return context.make_array(sig.args[i])(context, builder, args[i]).data


def _positions(context: Any, builder: Any, sig: Any, args: Any, numbers: tuple[int, ...]) -> list[Any]:
    return [context.cast(builder, args[i], sig.args[i], types.intp) for i in numbers]


def _sum_rows(
    builder: Any, dtype: Any, arrays: Sequence[Any], first: Any, pieces: Sequence[Any], numbers: Any, at: Any
) -> None:
    """Add up rows from table `first` on; for each piece (last, out) write the sums up to table `last` to `out`.

    `arrays` are the values, where each table begins, and the positions of the rows.
    """
    data, begins, places = arrays
    kind, size = ir.DoubleType() if dtype == types.float64 else ir.FloatType(), dtype.bitwidth // 8
    i64, vector = ir.IntType(64), ir.VectorType(kind, LANES)

    def number(value: int) -> Any:
        return ir.Constant(at.type, value)

    def add_up(width: int, column: Any) -> None:
        """Write the sums of `width` columns from `column` on."""
        row = ir.VectorType(kind, width)
        totals = [cgutils.alloca_once(builder, row) for _ in range(LANES)]
        for total in totals:
            builder.store(ir.Constant(row, None), total)
        start = first
        for last, out in pieces:
            with cgutils.for_range(builder, builder.sub(last, start), intp=at.type) as loop:
                table_number = builder.add(start, loop.index)
                begin = builder.load(builder.gep(begins, [table_number], source_etype=i64), typ=i64)
                table = builder.gep(data, [builder.add(begin, column)], source_etype=kind)
                line = builder.mul(builder.sub(table_number, first), number(LANES))
                for lane, total in enumerate(totals):
                    where = builder.gep(places, [builder.add(line, number(lane))], source_etype=_I32)
                    place = builder.zext(builder.load(where, typ=_I32), i64)
                    entry = builder.gep(table, [place], source_etype=kind)
                    found = builder.load(builder.bitcast(entry, row.as_pointer()), align=size, typ=row)
                    builder.store(builder.fadd(builder.load(total, typ=row), found), total)
            parts = [builder.load(total, typ=row) for total in totals]
            while parts[0].type.count < LANES:
                parts = [_joined(builder, *parts[i : i + 2]) for i in range(0, len(parts), 2)]
            for k, sums in enumerate(_columns(builder, parts)):
                here = builder.add(at, builder.mul(builder.add(column, number(k)), number(LANES)))
                place = builder.gep(out, [here], source_etype=kind)
                builder.store(sums, builder.bitcast(place, vector.as_pointer()), align=ALIGNMENT)
            start = last

    with builder.if_else(builder.icmp_signed("<=", numbers, number(4))) as (few, others):
        with few:
            add_up(4, number(0))
        with (
            others,
            builder.if_else(builder.icmp_signed("<=", numbers, number(8))) as (some, many),
        ):
            with some:
                add_up(8, number(0))
            with many:
                registers = builder.sdiv(builder.add(numbers, number(LANES - 1)), number(LANES))
                with cgutils.for_range(builder, registers, intp=at.type) as chunks:
                    add_up(LANES, builder.mul(chunks.index, number(LANES)))


def _joined(builder: Any, low: Any, high: Any) -> Any:
    """Return one vector after the other."""
    count = 2 * low.type.count
    return builder.shuffle_vector(low, high, ir.Constant(ir.VectorType(_I32, count), list(range(count))))


def _columns(builder: Any, parts: list[Any]) -> list[Any]:
    """Return the columns of a matrix whose rows lie one after the other in some vectors: even ones, then odd ones."""
    if len(parts) == 1:
        return parts
    halves = []
    for start in (0, 1):
        chosen = ir.Constant(_WORDS, list(range(start, 2 * LANES, 2)))
        halves.append(
            _columns(builder, [builder.shuffle_vector(*parts[i : i + 2], chosen) for i in range(0, len(parts), 2)])
        )
    return [x for pair in zip(*halves, strict=True) for x in pair]


@intrinsic
def as_words(typingctx: Any, x: Any) -> Any:
    """Return bytes converted to words."""
    return Vector(types.uint32)(x), lambda context, builder, sig, args: builder.zext(args[0], _WORDS)


@intrinsic
def drawn(typingctx: Any, threshold: Any, likelier: Any, word: Any) -> Any:
    """Return `likelier`, or its negative where the random word is below the threshold."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        against = builder.icmp_unsigned("<", args[2], args[0])
        return builder.select(against, builder.neg(args[1]), args[1])

    return likelier(threshold, likelier, word), emit


@intrinsic
def as_numbers(typingctx: Any, sums: Any, like: Any) -> Any:
    """Return signed sums converted to the type of `like`."""
    return like(sums, like), lambda context, builder, sig, args: builder.sitofp(args[0], args[1].type)


@intrinsic
def draw_bit(typingctx: Any, bits: Any, a: Any, e: Any, u: Any) -> Any:
    """Append a spin to the bits, drawn as in `draw_spin`: sign(a) with probability 1/(1+e); 1 is down."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        bits, a, e, u = args
        integers, _, _ = float_format(a.type)
        against = builder.fsub(call(builder, "fma", u, e, u), e)  # Negative if the spin is set against its field.
        down = builder.xor(builder.bitcast(against, integers), builder.bitcast(a, integers))
        return _appended(builder, bits, down)

    return bits(bits, a, e, u), emit


@intrinsic
def append_sign(typingctx: Any, bits: Any, spin: Any) -> Any:
    """Append a spin, ±1 in single precision, to the bits; 1 is down."""
    return bits(bits, spin), lambda context, builder, sig, args: _appended(
        builder, args[0], builder.bitcast(args[1], _WORDS)
    )


def _appended(builder: Any, bits: Any, word: Any) -> Any:
    """Shift the highest bit of the word into the bits."""
    shift = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(_WORDS, [_WORDS] * 3), f"llvm.fshl.v{LANES}i32"
    )
    return builder.call(shift, (bits, word, ir.Constant(_WORDS, [1] * LANES)))
