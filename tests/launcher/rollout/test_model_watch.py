"""Changes of a model's folder: which are new, and finished."""

from cluster_serving.launcher.rollout.model_watch import SETTLED_S, ModelWatch


def looks(watch, *looks):
    """The numbers of the looks after which a model is due; a look is a second and a fingerprint."""
    return [number for number, (second, seen) in enumerate(looks) if watch.is_due(seen, second)]


def test_a_change_is_due_once_it_has_settled():
    half, end = SETTLED_S - 1, SETTLED_S + 3
    assert looks(ModelWatch("old"), (0, "old"), (1, "half"), (half, "whole"), (end, "whole")) == []
    watch = ModelWatch("old")
    assert looks(watch, (0, "half"), (3, "whole"), (2 * SETTLED_S, "whole")) == [2]
    watch.note("whole", is_served=True)
    assert looks(watch, (30, "whole"), (60, "whole")) == []


def test_a_model_that_was_refused_is_due_again_only_when_it_changes():
    watch = ModelWatch("old", refused="bad")
    assert looks(watch, (0, "bad"), (100, "bad"), (101, "better"), (110, "better")) == [3]
    watch.note("better", is_served=False)
    assert looks(watch, (120, "better"), (200, "better")) == []
    # Back to what is served, and the same bad files a second time.
    assert looks(watch, (210, "old"), (220, "old"), (230, "better"), (240, "better")) == [3]
