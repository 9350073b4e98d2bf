"""The table of operator cases. Every backend is judged by every case, in each of its modes.

A case is data: operator, shapes, attributes, layout of its rows, seed. The numbers come from the
seed. `tolerance` is for exact arithmetic (float32 operands); a mode that rounds multiplies what it
rounds (see `judge.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from octavo.backends.testing import Layout
from octavo.graph import (
    AttentionAttrs,
    Attrs,
    EmbedPositionsAttrs,
    ExpertsAttrs,
    HeadLinearAttrs,
    LatentAttentionAttrs,
    LayerNormAttrs,
    NoAttrs,
    Op,
    RmsNormAttrs,
    RopeAttrs,
    RouteAttrs,
    ScaleAttrs,
    SoftcapAttrs,
)
from octavo.weights.scheme import MADE_SCHEMES

TILED = ("Q4_1", "Q5_0", "Q8_0", "Q4_K", "Q6_K", "TQ2_0")
FEWER = ("Q2_K", "Q3_K", "IQ4_NL", "IQ4_XS", "MXFP4", "IQ3_S", "TQ1_0", "NVFP4", *MADE_SCHEMES)
"""Of these a few cases each: what differs is how a group is read, not how rows are tiled."""
QUANTIZED = tuple(scheme for scheme in (*TILED, *FEWER) if scheme != "E5M2")
"""What products multiply by rows rounded to int8."""
FLOAT = ("F32", "F16", "BF16")


@dataclass(frozen=True)
class Case:
    """shapes: one per operand in the operator's order, activations as [T, features].

    scheme: how the operator's table or matrix is stored. size: the activations' standard deviation.
    tolerance: largest error, as a share of the root mean square of the reference's result.
    """

    id: str
    op: Op
    shapes: tuple[tuple[int, ...], ...]
    layout: Layout
    attrs: Attrs = field(default_factory=NoAttrs)
    scheme: str = "F32"
    size: float = 1.0
    seed: int = 0
    tolerance: float = 1e-5


def _linear(scheme: str, m: int, n: int, k: int, *, bias: bool = False) -> Case:
    shapes = ((m, k), (n, k)) + (((n,),) if bias else ())
    name = f"linear-{scheme}-{m}x{n}x{k}" + ("-bias" if bias else "")
    return Case(name, Op.LINEAR, shapes, Layout((m,)), scheme=scheme, seed=m, tolerance=2e-5)


def linear_cases() -> Iterator[Case]:
    """Every row count a kernel may tile by; sizes that fill tiles and sizes that do not."""
    for scheme in (*FLOAT, *TILED):
        for m in (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 17, 24, 31, 32, 33, 40):
            yield _linear(scheme, m, 48, 256)
        for n in (1, 15, 16, 17, 33, 100):
            yield _linear(scheme, 3, n, 512)
            yield _linear(scheme, 19, n, 512)
        yield _linear(scheme, 2, 64, 2048)
        yield _linear(scheme, 130, 32, 768)
        yield _linear(scheme, 1, 40, 256, bias=True)
        yield _linear(scheme, 21, 40, 256, bias=True)
    for scheme in FEWER:
        for m in (1, 5, 13, 70):
            yield _linear(scheme, m, 40, 512)
    for scheme in ("Q4_1", "Q5_0", "Q8_0", "IQ4_NL", "MXFP4", "Q8_Z", "E4M3", "E4M3_32", "E5M2"):
        for k in (32, 64, 96, 576, 608):
            yield _linear(scheme, 1, 32, k)
            yield _linear(scheme, 9, 32, k)
    for k in (1, 2, 7, 33, 100):
        yield _linear("F32", 1, 20, k)
        yield _linear("F32", 6, 20, k)


def embed_cases() -> Iterator[Case]:
    """Rows of a table of each scheme; ids repeat."""
    for scheme in (*FLOAT, *TILED, *FEWER):
        yield Case(
            f"embed-{scheme}", Op.EMBED, ((11,), (37, 256)), Layout((11,)), scheme=scheme, seed=5
        )
    yield Case("embed-one", Op.EMBED, ((1,), (3, 8)), Layout((1,)))
    yield Case("embed-odd", Op.EMBED, ((5,), (9, 7)), Layout((5,)))


def position_cases() -> Iterator[Case]:
    """Rows by position, from the table's start and from behind it, whole and in chunks."""
    for scheme in FLOAT:
        for offset in (0, 2):
            attrs = EmbedPositionsAttrs(offset)
            name = f"embed_positions-{scheme}-offset{offset}"
            layout = Layout((9,), chunk=4)
            yield Case(name, Op.EMBED_POSITIONS, ((37, 64),), layout, attrs, scheme=scheme)


def type_cases() -> Iterator[Case]:
    """Rows by token type: tables of one type, of the usual two, and of more."""
    for scheme in FLOAT:
        for types in (1, 2, 5):
            name, shapes = f"embed_types-{scheme}-{types}", ((9, 64), (types, 64))
            yield Case(name, Op.EMBED_TYPES, shapes, Layout((9,), chunk=4), scheme=scheme)


def layer_norm_cases() -> Iterator[Case]:
    """Sizes around a vector's, with and without bias; tiny, huge and shifted inputs."""
    for t, features in ((1, 64), (3, 576), (7, 37), (5, 15), (2, 1025)):
        for bias in (False, True):
            shapes = ((t, features), (features,)) + (((features,),) if bias else ())
            name = f"layer_norm-{t}x{features}" + ("-bias" if bias else "")
            yield Case(name, Op.LAYER_NORM, shapes, Layout((t,)), LayerNormAttrs(1e-5))
    for size, eps in ((1e-3, 1e-5), (1e3, 1e-5), (1e-4, 1e-2)):
        name = f"layer_norm-size{size}-eps{eps}"
        shapes = ((3, 128), (128,), (128,))
        yield Case(name, Op.LAYER_NORM, shapes, Layout((3,)), LayerNormAttrs(eps), size=size)


def norm_cases() -> Iterator[Case]:
    """Whole rows, runs of a head, the +1 of Gemma, tiny and huge inputs."""
    for t, features, weight in ((1, 64, 64), (3, 576, 576), (7, 37, 37), (5, 96, 32), (4, 640, 1)):
        for offset in (0.0, 1.0):
            attrs = RmsNormAttrs(1e-6, offset)
            name = f"rms_norm-{t}x{features}-{weight}-offset{offset:.0f}"
            yield Case(name, Op.RMS_NORM, ((t, features), (weight,)), Layout((t,)), attrs)
    for size, eps in ((1e-3, 1e-5), (1e3, 1e-5), (1e-4, 1e-2)):
        name = f"rms_norm-size{size}-eps{eps}"
        shapes = ((3, 128), (128,))
        yield Case(name, Op.RMS_NORM, shapes, Layout((3,)), RmsNormAttrs(eps), size=size)


def rope_cases() -> Iterator[Case]:
    """Both pairings, partial rotation, many heads, late positions, a magnitude."""
    for pairing in (False, True):
        word = "interleaved" if pairing else "split"
        for heads, head_dim, rotary in ((1, 2, 2), (4, 64, 64), (3, 80, 32), (2, 256, 256)):
            yield Case(
                f"rope-{word}-{heads}x{head_dim}-rotary{rotary}",
                Op.ROPE,
                ((9, heads * head_dim), (rotary // 2,)),
                Layout((9,)),
                RopeAttrs(head_dim, pairing),
                tolerance=2e-5,
            )
        yield Case(
            f"rope-{word}-late",
            Op.ROPE,
            ((300, 32), (16,)),
            Layout((300,), chunk=64),
            RopeAttrs(32, pairing),
            tolerance=5e-5,
        )
        yield Case(
            f"rope-{word}-magnitude",
            Op.ROPE,
            ((4, 32), (16,)),
            Layout((4,)),
            RopeAttrs(32, pairing, 1.25),
            tolerance=2e-5,
        )


def _attention(
    name: str,
    heads: tuple[int, int, int],
    layout: Layout,
    *,
    scale: float | None = None,
    window: int | None = None,
    softcap: float | None = None,
    size: float = 1.0,
    causal: bool = True,
    sinks: bool = False,
) -> Case:
    query, kv, dim = heads
    attrs = AttentionAttrs(0, query, kv, dim, scale or dim**-0.5, window, softcap, causal)
    rows = layout.num_rows
    shapes = ((rows, query * dim), (rows, kv * dim), (rows, kv * dim))
    shapes += ((query,),) if sinks else ()
    name = f"attention-{name}"
    return Case(name, Op.ATTENTION, shapes, layout, attrs, seed=rows, size=size, tolerance=5e-5)


def attention_cases() -> Iterator[Case]:
    """Head ratios and sizes, prefill, chunks, single tokens, several sequences, windows, caps."""
    for heads in ((1, 1, 32), (4, 4, 64), (9, 3, 64), (8, 1, 64), (12, 2, 128), (4, 1, 256)):
        word = "x".join(map(str, heads))
        yield _attention(f"{word}-one", heads, Layout((1,)))
        yield _attention(f"{word}-prefill", heads, Layout((45,)))
        yield _attention(f"{word}-decode", heads, Layout((37,), chunk=1))
    for dim in (8, 16, 48, 80, 96, 112):
        yield _attention(f"head{dim}", (4, 2, dim), Layout((33,), chunk=16))
    small = (6, 2, 32)
    for lengths in ((1, 1), (5, 40, 17), (64, 1, 33, 2), (3,) * 9):
        word = "+".join(map(str, lengths))
        yield _attention(f"sequences-{word}", small, Layout(lengths))
        yield _attention(f"sequences-{word}-chunks", small, Layout(lengths, chunk=7))
    for block_size in (1, 8, 32):
        layout = Layout((70, 20), chunk=11, block_size=block_size, seed=3)
        yield _attention(f"blocks-of-{block_size}", small, layout)
    for window in (1, 2, 15, 16, 17, 32, 1000):
        layout = Layout((90, 30), chunk=13)
        yield _attention(f"window{window}", small, layout, window=window)
        yield _attention(f"window{window}-decode", small, Layout((50,), chunk=1), window=window)
    for window in (2, 7, 200):  # rows of one piece that see nothing of a chunk that others see
        yield _attention(f"window{window}-over-chunks", (1, 1, 32), Layout((600,)), window=window)
    yield _attention("softcap", small, Layout((40,), chunk=9), softcap=5.0, size=3.0)
    yield _attention("softcap-window", small, Layout((40,)), softcap=2.0, window=9, size=3.0)
    for word, layout in (
        ("one", Layout((1,))),
        ("chunks", Layout((40, 300), chunk=9)),
        ("decode", Layout((37,), chunk=1)),
    ):
        yield _attention(f"sinks-{word}", small, layout, sinks=True)
        yield _attention(f"sinks-{word}-window", small, layout, window=16, sinks=True, size=2.0)
    yield _attention("sharp", small, Layout((60,), chunk=20), size=6.0)
    yield _attention("scale", small, Layout((20,)), scale=0.01)
    yield _attention("long", (2, 1, 64), Layout((700,), chunk=128, block_size=32))
    yield _attention(
        "long-window", (2, 1, 64), Layout((700,), chunk=128, block_size=32), window=300
    )


def head_linear_cases() -> Iterator[Case]:
    """Heads that fill panels of 16 rows and heads that share them; rows that fill items and not."""
    for scheme in (*FLOAT, *QUANTIZED):
        for m, heads, n, k in ((1, 4, 32, 256), (7, 3, 24, 256), (100, 2, 40, 256)):
            shapes = ((m, heads * k), (heads * n, k))
            name = f"head_linear-{scheme}-{m}-{heads}x{n}x{k}"
            attrs = HeadLinearAttrs(heads)
            yield Case(
                name, Op.HEAD_LINEAR, shapes, Layout((m,)), attrs, scheme, seed=m, tolerance=2e-5
            )
    shapes = ((5, 6 * 7), (6 * 3, 7))
    yield Case("head_linear-odd", Op.HEAD_LINEAR, shapes, Layout((5,)), HeadLinearAttrs(6))


def _latent(name: str, heads: int, dims: tuple[int, int], layout: Layout, size: float = 1) -> Case:
    latent, rope = dims
    attrs = LatentAttentionAttrs(0, heads, latent, rope, (latent + rope) ** -0.5)
    rows = layout.num_rows
    shapes = ((rows, heads * latent), (rows, heads * rope), (rows, latent), (rows, rope))
    op, name = Op.LATENT_ATTENTION, f"latent_attention-{name}"
    return Case(name, op, shapes, layout, attrs, seed=rows, size=size, tolerance=5e-5)


def latent_attention_cases() -> Iterator[Case]:
    """Heads that fit a task and heads that do not, sizes that fill vectors and that do not."""
    for heads, dims in ((1, (32, 32)), (4, (32, 16)), (16, (512, 64)), (12, (24, 8)), (5, (70, 6))):
        word = f"{heads}x{dims[0]}+{dims[1]}"
        yield _latent(f"{word}-one", heads, dims, Layout((1,)))
        yield _latent(f"{word}-prefill", heads, dims, Layout((45,)))
        yield _latent(f"{word}-decode", heads, dims, Layout((37,), chunk=1))
    yield _latent("many-heads", 128, (64, 32), Layout((9, 40), chunk=20))
    yield _latent("odd-heads", 53, (32, 32), Layout((5,)))
    for lengths in ((1, 1), (5, 40, 17), (64, 1, 33, 2)):
        word = "+".join(map(str, lengths))
        yield _latent(f"sequences-{word}-chunks", 6, (32, 16), Layout(lengths, chunk=7))
    yield _latent("sharp", 4, (32, 16), Layout((60,), chunk=20), size=6.0)
    yield _latent("long", 4, (64, 32), Layout((700,), chunk=128))


def bidirectional_cases() -> Iterator[Case]:
    """Whole sequences whose tokens see those behind them: lengths around blocks, tiles and chunks,
    windows that reach both ways, a cap."""
    for heads in ((1, 1, 32), (4, 4, 64), (8, 2, 64), (3, 3, 40)):
        word = "x".join(map(str, heads))
        for length in (1, 31, 33, 48, 49, 97):
            yield _attention(f"both-ways-{word}-{length}", heads, Layout((length,)), causal=False)
    small = (6, 2, 32)
    for lengths in ((1, 1), (5, 40, 17), (64, 1, 33, 2), (3,) * 9, (257, 20, 256)):
        word = "+".join(map(str, lengths))
        yield _attention(f"both-ways-sequences-{word}", small, Layout(lengths), causal=False)
    for window in (1, 2, 16, 17, 65, 1000):
        layout = Layout((90, 30, 300))
        name = f"both-ways-window{window}"
        yield _attention(name, small, layout, window=window, causal=False)
    layout = Layout((40, 9))
    yield _attention("both-ways-cap", small, layout, softcap=2.0, size=3.0, causal=False)
    long = Layout((700,))
    yield _attention("both-ways-long", (2, 1, 64), long, causal=False)
    yield _attention("both-ways-long-window", (2, 2, 64), long, window=129, causal=False)


def elementwise_cases() -> Iterator[Case]:
    """Lengths around vector widths, and arguments that overflow a careless exponential."""
    for t, features in ((1, 1), (2, 15), (3, 64), (5, 100), (1, 2049)):
        one, two = ((t, features),), ((t, features), (t, features))
        layout = Layout((t,))
        size = f"{t}x{features}"
        yield Case(f"add-{size}", Op.ADD, two, layout)
        yield Case(f"mul-{size}", Op.MUL, two, layout)
        yield Case(f"scale-{size}", Op.SCALE, one, layout, ScaleAttrs(-0.37))
        yield Case(f"silu-{size}", Op.SILU, one, layout)
        yield Case(f"gelu-{size}", Op.GELU, one, layout)
        yield Case(f"gelu_erf-{size}", Op.GELU_ERF, one, layout)
        yield Case(f"relu-{size}", Op.RELU, one, layout)
        yield Case(f"tanh-{size}", Op.TANH, one, layout)
        yield Case(f"softcap-{size}", Op.SOFTCAP, one, layout, SoftcapAttrs(0.7))
    for op in (Op.SILU, Op.GELU, Op.GELU_ERF):
        yield Case(f"{op.value}-huge", op, ((4, 64),), Layout((4,)), size=200.0)
        yield Case(f"{op.value}-tiny", op, ((4, 64),), Layout((4,)), size=1e-4)
    wide = ((4, 64),)
    yield Case("tanh-huge", Op.TANH, wide, Layout((4,)), size=200.0)
    yield Case("softcap-huge", Op.SOFTCAP, wide, Layout((4,)), SoftcapAttrs(30.0), size=900.0)


def row_cases() -> Iterator[Case]:
    """Rows out of order and repeated, as samples that share a prompt ask for them."""
    for rows in ((0,), (4, 0, 2), (3, 3, 3, 1), (4,) * 12):
        word = "+".join(map(str, rows))
        layout = Layout((5,), rows=rows)
        yield Case(f"select_rows-{word}", Op.SELECT_ROWS, ((5, 48),), layout)
    for lengths, rows in (((1,), (0,)), ((5, 1, 33), (0, 5, 6)), ((4, 4), (7, 2, 3, 7))):
        word = "+".join(map(str, (*lengths, "of", *rows)))
        layout = Layout(lengths, rows=rows)
        yield Case(f"mean_rows-{word}", Op.MEAN_ROWS, ((sum(lengths), 48),), layout)


ROUTINGS = {
    "softmax": RouteAttrs(4),  # Qwen2-MoE
    "softmax-normalized": RouteAttrs(4, normalize=True),  # Mixtral, Qwen3-MoE
    "chosen-softmax": RouteAttrs(4, "chosen_softmax"),  # gpt-oss
    "sigmoid": RouteAttrs(3, "sigmoid", normalize=True, scale=2.5),
    "group-max": RouteAttrs(3, scale=16.0, num_groups=4, top_groups=2),  # DeepSeek V2
    "group-top2": RouteAttrs(  # DeepSeek V3
        6, "sigmoid", True, 2.5, num_groups=8, top_groups=4, group_score="top2"
    ),
    "all": RouteAttrs(16),
    "one": RouteAttrs(1),
}


def route_cases() -> Iterator[Case]:
    """Every way of routing, with and without a bias that only chooses; ties; overflowing logits."""
    for name, attrs in ROUTINGS.items():
        for bias in (False, True):
            shapes = ((13, 16),) + (((16,),) if bias else ())
            word = f"route-{name}" + ("-bias" if bias else "")
            yield Case(word, Op.ROUTE, shapes, Layout((13,)), attrs, tolerance=2e-5)
        word, shapes = f"route-{name}-ties", ((70, 16),)
        yield Case(word, Op.ROUTE, shapes, Layout((70,)), attrs, size=0.0, tolerance=2e-5)
    for name in ("softmax-normalized", "chosen-softmax", "sigmoid"):
        attrs, shapes = ROUTINGS[name], ((9, 128),)
        yield Case(f"route-{name}-wide", Op.ROUTE, shapes, Layout((9,)), attrs, tolerance=2e-5)
        yield Case(f"route-{name}-huge", Op.ROUTE, shapes, Layout((9,)), attrs, size=30.0)


def _experts(
    name: str,
    rows: int,
    dims: tuple[int, int, int, int],
    attrs: ExpertsAttrs | None = None,
    *,
    scheme: str = "F32",
    bias: bool = False,
    chunk: int | None = None,
) -> Case:
    """dims: experts, chosen of them, hidden, features."""
    count, chosen, hidden, features = dims
    inward, outward = (count, hidden, features), (count, features, hidden)
    shapes = ((rows, features), (rows, 2 * chosen), inward, inward, outward)
    biases = ((count, hidden), (count, hidden), (count, features)) if bias else ()
    return Case(
        f"experts-{name}",
        Op.EXPERTS,
        (*shapes, *biases),
        Layout((rows,), chunk=chunk),
        attrs or ExpertsAttrs(),
        scheme=scheme,
        seed=rows,
        tolerance=2e-5,
    )


def experts_cases() -> Iterator[Case]:
    """Floats and ways of storing scales; few rows and many, all experts and one, odd sizes, biases,
    activations."""
    for scheme in (*FLOAT, "Q8_0", "Q4_K", "Q6_K", "MXFP4", "TQ2_0", "Q8_Z", "E4M3_32", "E5M2"):
        for rows in (1, 40):
            yield _experts(f"{scheme}-{rows}", rows, (8, 2, 256, 256), scheme=scheme)
    for rows in (1, 2, 17, 130):
        yield _experts(f"all-of-3-{rows}", rows, (3, 3, 32, 64))
        yield _experts(f"one-of-1-{rows}", rows, (1, 1, 48, 40))
        yield _experts(f"odd-{rows}", rows, (5, 2, 37, 19), bias=True)
    yield _experts("chunks", 33, (6, 2, 32, 48), chunk=5)
    yield _experts("many", 20, (64, 8, 16, 32))
    yield _experts("many-Q8_0", 50, (64, 8, 32, 64), scheme="Q8_0")
    yield _experts("bias-Q8_0", 9, (4, 2, 96, 64), scheme="Q8_0", bias=True)
    yield _experts("gelu", 7, (4, 2, 32, 32), ExpertsAttrs("gelu"))
    yield _experts("gelu_erf", 7, (4, 2, 32, 32), ExpertsAttrs("gelu_erf"))
    clamped = ExpertsAttrs("clamped_swiglu", 1.702, 7.0)
    yield _experts("clamped", 7, (4, 2, 64, 64), clamped, bias=True)


def gate_rows_cases() -> Iterator[Case]:
    """One gate a row."""
    for t, features in ((1, 1), (3, 64), (5, 100)):
        shapes = ((t, features), (t, 1))
        yield Case(f"gate_rows-{t}x{features}", Op.GATE_ROWS, shapes, Layout((t,)))


CASES: tuple[Case, ...] = (
    *linear_cases(),
    *embed_cases(),
    *position_cases(),
    *type_cases(),
    *norm_cases(),
    *layer_norm_cases(),
    *rope_cases(),
    *attention_cases(),
    *head_linear_cases(),
    *latent_attention_cases(),
    *bidirectional_cases(),
    *elementwise_cases(),
    *route_cases(),
    *experts_cases(),
    *gate_rows_cases(),
    *row_cases(),
)
