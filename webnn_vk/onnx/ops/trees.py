"""Ensembles of decision trees (ai.onnx.ml): all trees of all rows go down one level at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

import numpy as np

from webnn_vk.api.builder import MLOperand
from webnn_vk.support.dataclass import dataclass

from ..context import NodeContext, check_made
from ..errors import Unsupported, refuse_if
from ..records import onnx_operator
from ..values import Tensor, Text
from .classical import ML

_MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ",
          "BRANCH_MEMBER")
_COMPARISONS = dict(zip(
    _MODES, ("lesser_or_equal", "lesser", "greater_or_equal", "greater", "equal", "not_equal"),
    strict=False,
))
_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
#: Levels that trees may have.
_MAX_DEPTH = 1024


@dataclass
class _Ensemble:
    """Nodes by number, leaves among them, which lead to themselves. ``weights`` by leaf and
    target; ``members``: what BRANCH_MEMBER compares with, by node."""

    roots: list[int]
    features: list[int]
    splits: list[float]
    modes: list[str]
    yes: list[int]
    no: list[int]
    missing: list[bool]
    targets: int
    weights: dict[tuple[int, int], float] = field(default_factory=dict)
    members: dict[int, list[float]] = field(default_factory=dict)

    def depth(self) -> int:
        """Levels below the roots. Unsupported for what is no tree."""
        count, level, depth = len(self.features), set(self.roots), 0
        if not self.roots or not all(0 <= n < count for n in (*self.roots, *self.yes, *self.no)):
            raise Unsupported("a branch leads to a node that isn't there")
        while level := {n for at in level if self.yes[at] != at or self.no[at] != at
                        for n in (self.yes[at], self.no[at])}:
            depth += 1
            if depth > min(count, _MAX_DEPTH):
                raise Unsupported(f"trees with cycles, or of more than {_MAX_DEPTH} levels")
        return depth


def _ends(c: NodeContext, x: Tensor, trees: _Ensemble) -> MLOperand:
    """[rows, trees]: the leaves that the rows end in."""
    refuse_if(x.rank != 2, f"an input of rank {x.rank}, not rows of features")
    values, (rows, features) = c.cast(x, "float32"), x.shape
    depth, count = trees.depth(), len(trees.roots)
    if not all(0 <= f < features for f in trees.features):
        raise Unsupported(f"features beyond the {features} of the input")
    check_made(rows, count, trees.targets)
    at = c.b.expand(c.constant([trees.roots], "int32"), [rows, count])
    for _ in range(depth):
        looked_at = c.b.gather(c.constant(trees.features, "int32"), at)
        value = c.b.gather_elements(values, looked_at, axis=1)
        taken = _condition(c, trees, at, value)
        yes, no = (c.b.gather(c.constant(side, "int32"), at) for side in (trees.yes, trees.no))
        at = c.b.where(taken, yes, no)
    return at


def _scores(c: NodeContext, at: MLOperand, trees: _Ensemble, aggregate: str) -> MLOperand:
    """[rows, targets]: what the leaves give that the rows end in."""
    refuse_if(aggregate not in _AGGREGATES, f"aggregate_function {aggregate!r} is unknown")
    given = _of_leaves(c, at, trees, trees.weights, "float32")  # rows, trees, targets
    if aggregate in ("SUM", "AVERAGE"):
        total = c.b.reduce_sum(given, axes=[1])
        return c.b.div(total, float(len(trees.roots))) if aggregate == "AVERAGE" else total
    nothing = np.inf if aggregate == "MIN" else -np.inf
    known = _known(c, at, trees)
    given = c.b.where(known, given, c.constant(nothing, "float32"))
    reduce = c.b.reduce_min if aggregate == "MIN" else c.b.reduce_max
    some = c.b.reduce_max(known, axes=[1])
    return c.b.where(some, reduce(given, axes=[1]), c.constant(0.0, "float32"))


def _known(c: NodeContext, at: MLOperand, trees: _Ensemble) -> MLOperand:
    """[rows, trees, targets], uint8: whether a leaf weighs for a target."""
    return _of_leaves(c, at, trees, dict.fromkeys(trees.weights, 1), "uint8")


def _of_leaves(
    c: NodeContext, at: MLOperand, trees: _Ensemble, numbers: Mapping[tuple[int, int], float],
    kind: str,
) -> MLOperand:
    """[rows, trees, targets]: the numbers by leaf and target, 0 elsewhere."""
    check_made(len(trees.features), trees.targets)
    table = np.zeros((len(trees.features), trees.targets), kind)
    for place, number in numbers.items():
        table[place] = number
    return c.b.gather(c.constant(table, kind), at)


def _condition(
    c: NodeContext, trees: _Ensemble, at: MLOperand, value: MLOperand
) -> MLOperand:
    """Whether each row takes the branch of truth in each tree."""
    split = c.b.gather(c.constant(trees.splits, "float32"), at)
    inner = [m for n, m in enumerate(trees.modes) if trees.yes[n] != n or trees.no[n] != n]
    numbers = c.constant([_MODES.index(mode) for mode in trees.modes], "int32")
    taken: MLOperand | None = None
    for mode in dict.fromkeys(inner):
        if mode == "BRANCH_MEMBER":
            holds = _is_member(c, trees, at, value)
        else:
            holds = getattr(c.b, _COMPARISONS[mode])(value, split)
        if taken is None:
            taken = holds
        else:
            of_mode = c.b.equal(c.b.gather(numbers, at), _MODES.index(mode))
            taken = c.b.where(of_mode, holds, taken)
    assert taken is not None
    if any(trees.missing):
        tracks = c.b.gather(c.constant(trees.missing, "uint8"), at)
        taken = c.b.logical_or(taken, c.b.logical_and(tracks, c.b.is_nan(value)))
    return taken


def _is_member(
    c: NodeContext, trees: _Ensemble, at: MLOperand, value: MLOperand
) -> MLOperand:
    length = max(map(len, trees.members.values()), default=0)
    check_made(len(trees.features), max(length, 1))
    # NaN is equal to nothing.
    table = np.full((len(trees.features), max(length, 1)), np.nan, np.float32)
    for node, members in trees.members.items():
        table[node, : len(members)] = members
    sets = c.b.gather(c.constant(table, "float32"), at)
    found = c.b.equal(c.reshape(value, [*value.shape, 1]), sets)
    return c.b.reduce_max(found, axes=[2])


def transformed(c: NodeContext, scores: MLOperand, transform: str) -> MLOperand:
    """Scores [rows, targets] after a ``post_transform``."""
    match transform:
        case "NONE":
            return scores
        case "SOFTMAX":
            return c.b.softmax(scores, 1)
        case "LOGISTIC":
            return c.b.sigmoid(scores)
        case "SOFTMAX_ZERO":
            # As softmax, but zeros stay so and don't count.
            zero = c.b.equal(scores, 0.0)
            top = c.b.reduce_max(scores, axes=[1], keep_dimensions=True)
            powers = c.b.exp(c.b.sub(scores, top))
            powers = c.b.where(zero, c.constant(0.0, "float32"), powers)
            total = c.b.reduce_sum(powers, axes=[1], keep_dimensions=True)
            empty = c.b.equal(total, 0.0)
            return c.b.div(powers, c.b.where(empty, c.constant(1.0, "float32"), total))
        case "PROBIT":
            return _probit(c, scores)
    raise Unsupported(f"post_transform {transform!r} is not supported")


def _probit(c: NodeContext, p: MLOperand) -> MLOperand:
    """√2 · erf⁻¹(2p − 1), by Winitzki's formula with the constants of ONNX Runtime, whose results
    it is compared with; NaN outside of 0 … 1."""
    x = c.b.linear(p, alpha=2.0, beta=-1.0)
    log = c.b.log(c.b.mul(c.b.linear(x, alpha=-1.0, beta=1.0), c.b.linear(x, beta=1.0)))
    half = c.b.linear(log, alpha=0.5, beta=2 / (3.14159 * 0.147))
    root = c.b.sqrt(c.b.sub(c.b.mul(half, half), c.b.mul(log, 1 / 0.147)))
    # √(half² − log / 0.147) − half, where the two are nearly the same too.
    less = c.b.div(c.b.mul(log, -1 / 0.147), c.b.add(root, half))
    less = c.b.where(c.b.greater(half, 0.0), less, c.b.sub(root, half))
    size = c.b.mul(c.b.sqrt(less), 1.41421356)
    return c.b.where(c.b.lesser(x, 0.0), c.b.neg(size), size)


@onnx_operator("TreeEnsemble", domain=ML)
def tree_ensemble(
    c: NodeContext,
    x: Tensor,
    *,
    leaf_targetids: list[int],
    leaf_weights: np.ndarray,
    nodes_falseleafs: list[int],
    nodes_falsenodeids: list[int],
    nodes_featureids: list[int],
    nodes_modes: np.ndarray,
    nodes_splits: np.ndarray,
    nodes_trueleafs: list[int],
    nodes_truenodeids: list[int],
    tree_roots: list[int],
    aggregate_function: int = 1,
    membership_values: np.ndarray | None = None,
    n_targets: int = 0,
    nodes_hitrates: np.ndarray | None = None,
    nodes_missing_value_tracks_true: list[int] | None = None,
    post_transform: int = 0,
) -> MLOperand:
    count, leaves = len(nodes_featureids), len(leaf_targetids)
    modes = [int(m) for m in np.asarray(nodes_modes).reshape(-1)]
    refuse_if(not all(0 <= m < len(_MODES) for m in modes), "nodes_modes names no comparison")

    def branch(ids: list[int], leafs: list[int]) -> list[int]:
        return [n + count if leaf else n for n, leaf in zip(ids, leafs, strict=True)]

    own = list(range(count, count + leaves))
    trees = _Ensemble(
        list(tree_roots),
        [*nodes_featureids, *[0] * leaves],
        [*np.asarray(nodes_splits, np.float32).reshape(-1).tolist(), *[0.0] * leaves],
        [*[_MODES[m] for m in modes], *["BRANCH_LEQ"] * leaves],
        [*branch(nodes_truenodeids, nodes_trueleafs), *own],
        [*branch(nodes_falsenodeids, nodes_falseleafs), *own],
        [*[bool(m) for m in nodes_missing_value_tracks_true or [0] * count], *[False] * leaves],
        n_targets or max(leaf_targetids, default=0) + 1,
    )
    if not all(0 <= target < trees.targets for target in leaf_targetids):
        raise Unsupported("a leaf belongs to a target that isn't there")
    weights = np.asarray(leaf_weights, np.float32).reshape(-1).tolist()
    for leaf, (target, weight) in enumerate(zip(leaf_targetids, weights, strict=True)):
        trees.weights[count + leaf, target] = weight
    of_sets = [n for n, mode in enumerate(trees.modes) if mode == "BRANCH_MEMBER"]
    if of_sets:
        values = np.asarray([] if membership_values is None else membership_values, np.float32)
        bounds = np.flatnonzero(np.isnan(values.reshape(-1)))
        for node, members in zip(of_sets, np.split(values.reshape(-1), bounds), strict=False):
            trees.members[node] = [float(v) for v in members if not np.isnan(v)]
    if not (0 <= aggregate_function < 4 and 0 <= post_transform < 5):
        raise Unsupported("aggregate_function or post_transform is none that ONNX knows")
    scores = _scores(c, _ends(c, x, trees), trees, _AGGREGATES[aggregate_function])
    return transformed(c, scores, _TRANSFORMS[post_transform])


@dataclass(frozen=True)
class TreeAttributes:
    """The attributes of ensembles before opset 5: lists with an entry for each node."""

    nodes_falsenodeids: list[int]
    nodes_featureids: list[int]
    nodes_modes: list[str]
    nodes_nodeids: list[int]
    nodes_treeids: list[int]
    nodes_truenodeids: list[int]
    base_values: list[float] | None = None
    base_values_as_tensor: np.ndarray | None = None
    nodes_hitrates: list[float] | None = None
    nodes_hitrates_as_tensor: np.ndarray | None = None
    nodes_missing_value_tracks_true: list[int] | None = None
    nodes_values: list[float] | None = None
    nodes_values_as_tensor: np.ndarray | None = None
    post_transform: str = "NONE"

    def base(self) -> list[float]:
        """The addend to the scores of all rows."""
        return _either(self.base_values, self.base_values_as_tensor)


def _from_lists(
    given: TreeAttributes, targets: int,
    leaves: tuple[Sequence[int], Sequence[int], Sequence[int], Sequence[float]],
) -> _Ensemble:
    """An ensemble as opsets before 5 have it: nodes and leaves by numbers of tree and node."""
    places = list(zip(given.nodes_treeids, given.nodes_nodeids, strict=True))
    modes, missing = given.nodes_modes, given.nodes_missing_value_tracks_true
    number = {place: n for n, place in enumerate(places)}
    if not all(mode == "LEAF" or mode in _COMPARISONS for mode in modes):
        raise Unsupported("nodes_modes names no comparison")

    def branch(ids: Sequence[int]) -> list[int]:
        return [
            n if modes[n] == "LEAF" else number.get((tree, to), -1)
            for n, ((tree, _), to) in enumerate(zip(places, ids, strict=True))
        ]

    roots = {tree: n for n, (tree, _) in reversed(list(enumerate(places)))}
    trees = _Ensemble(
        sorted(roots.values()),
        [0 if m == "LEAF" else f for f, m in zip(given.nodes_featureids, modes, strict=True)],
        _either(given.nodes_values, given.nodes_values_as_tensor),
        ["BRANCH_LEQ" if m == "LEAF" else m for m in modes],
        branch(given.nodes_truenodeids), branch(given.nodes_falsenodeids),
        [bool(m) for m in missing or [0] * len(modes)],
        targets,
    )
    for tree, node, target, weight in zip(*leaves, strict=True):
        if (tree, node) not in number or not 0 <= target < targets:
            raise Unsupported("a weight belongs to a leaf or a target that isn't there")
        place = number[tree, node], target
        trees.weights[place] = trees.weights.get(place, 0.0) + weight
    return trees


def _either(numbers: list[float] | None, tensor: np.ndarray | None) -> list[float]:
    """An attribute that may be a list or a tensor of doubles, which are narrowed."""
    if tensor is not None:
        return np.asarray(tensor, np.float32).reshape(-1).tolist()
    return list(numbers or [])


@onnx_operator("TreeEnsembleRegressor", domain=ML)
def tree_ensemble_regressor(
    c: NodeContext, x: Tensor, *, given: TreeAttributes, target_ids: list[int],
    target_nodeids: list[int], target_treeids: list[int], aggregate_function: str = "SUM",
    n_targets: int = 1, target_weights: list[float] | None = None,
    target_weights_as_tensor: np.ndarray | None = None,
) -> MLOperand:
    weights = _either(target_weights, target_weights_as_tensor)
    trees = _from_lists(given, n_targets, (target_treeids, target_nodeids, target_ids, weights))
    scores = _based(c, _scores(c, _ends(c, x, trees), trees, aggregate_function), given.base())
    return transformed(c, scores, given.post_transform)


def _based(c: NodeContext, scores: MLOperand, base: list[float]) -> MLOperand:
    return c.b.add(scores, c.constant([base], "float32")) if base else scores


def labelled(
    c: NodeContext, best: MLOperand, numbers: list[int] | None, words: list[str] | None
) -> MLOperand | Text | None:
    """The labels of the classes, if they are wanted."""
    if not c.wants(0):
        return None
    if words:
        return Text(c.typed(best, "int64"), tuple(words))
    return c.b.gather(c.constant(numbers, "int64"), best)


@onnx_operator("TreeEnsembleClassifier", domain=ML)
def tree_ensemble_classifier(
    c: NodeContext, x: Tensor, *, given: TreeAttributes, class_ids: list[int],
    class_nodeids: list[int], class_treeids: list[int], class_weights: list[float] | None = None,
    class_weights_as_tensor: np.ndarray | None = None,
    classlabels_int64s: list[int] | None = None, classlabels_strings: list[str] | None = None,
) -> tuple[MLOperand | Text | None, MLOperand]:
    count = len(classlabels_int64s or classlabels_strings or [])
    weights = _either(class_weights, class_weights_as_tensor)
    base, post_transform = given.base(), given.post_transform
    # With two classes, leaves may have weights for one of them only.
    sides = set(class_ids) if count == 2 else set()
    one_sided = len(sides) == 1
    trees = _from_lists(
        given, 1 if sides == {0} else count, (class_treeids, class_nodeids, class_ids, weights)
    )
    if len(base) not in (0, trees.targets):
        raise Unsupported(f"{len(base)} base_values for {trees.targets} scores")
    at = _ends(c, x, trees)
    scores = _based(c, _scores(c, at, trees, "SUM"), base)
    if one_sided:
        # They say how likely the second class is, or, with both signs, how far it is ahead.
        likely = all(weight >= 0 for weight in weights)
        own = c.reshape(c.slice(scores, 1, trees.targets - 1, 1), x.shape[:1])
        best = c.b.cast(c.b.greater(own, 0.5 if likely else 0.0), "int64")
    else:
        best = c.b.arg_max(_judged(c, at, trees, scores, bool(base)), 1, output_data_type="int64")
    if sides == {0}:
        if post_transform == "PROBIT":
            raise Unsupported("PROBIT where all leaves weigh for the first of two classes: ONNX "
                              "Runtime leaves the second's score undefined")
        # As ONNX Runtime has it: what is no logistic is not transformed.
        logistic = post_transform == "LOGISTIC"
        post_transform = post_transform if logistic else "NONE"
        whole = 1.0 if likely and not logistic else 0.0
        scores = c.b.concat([c.b.sub(c.constant(whole, "float32"), scores), scores], 1)
    labels = labelled(c, best, classlabels_int64s, classlabels_strings)
    return labels, transformed(c, scores, post_transform)


def _judged(
    c: NodeContext, at: MLOperand, trees: _Ensemble, scores: MLOperand, based: bool
) -> MLOperand:
    """The scores among which the greatest decides: of classes that a leaf weighs for, and of all
    with base values. 0 is no score."""
    leaves = [n for n, yes in enumerate(trees.yes) if yes == n == trees.no[n]]
    if based or all((n, t) in trees.weights for n in leaves for t in range(trees.targets)):
        return scores
    some = c.b.reduce_max(_known(c, at, trees), axes=[1])
    return c.b.where(some, scores, c.constant(-np.inf, "float32"))
