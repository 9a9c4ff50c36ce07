"""Numba intrinsics that Numba itself lacks: plain pointers, prefetch, and bit counts."""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils, types
from numba.extending import intrinsic

#: Arguments of a prefetch: read, second-level cache, data. More lines can be in flight to the second level than to the
#: first (measured: a third of the time, or less).
_READ, _SECOND_LEVEL, _DATA = ir.IntType(32)(0), ir.IntType(32)(2), ir.IntType(32)(1)


@intrinsic  # type: ignore[untyped-decorator]
def pointer(_typing: Any, array: Any) -> Any:
    """pointer(array): the address of an array's elements, indexed like the array.

    Numba counts references to arrays at each use of one within a tuple, which costs more than the rest of a lookup. A
    pointer has no such cost; the caller keeps the array alive.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return context.make_array(signature.args[0])(context, builder, arguments[0]).data

    return types.CPointer(array.dtype)(array), generate  # type: ignore[attr-defined]


@intrinsic  # type: ignore[untyped-decorator]
def prefetch(_typing: Any, pointed: Any, _index: Any) -> Any:
    """prefetch(pointer, index): asks for the cache line of an element ahead of its use; any index is harmless."""

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        address = builder.bitcast(builder.gep(arguments[0], [arguments[1]]), cgutils.voidptr_t)
        kind = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, *[ir.IntType(32)] * 3])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        builder.call(function, [address, _READ, _SECOND_LEVEL, _DATA])
        return context.get_dummy_value()

    return types.void(pointed, types.intp), generate


@intrinsic  # type: ignore[untyped-decorator]
def trailing_zeros(_typing: Any, _word: Any) -> Any:
    """trailing_zeros(word): the position of the lowest bit that is set in a word that is not zero."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.IntType(1)(1))

    return types.int64(types.uint64), generate


@intrinsic  # type: ignore[untyped-decorator]
def ones(_typing: Any, _word: Any) -> Any:
    """ones(word): the number of bits that are set in a word."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.int64(types.uint64), generate
