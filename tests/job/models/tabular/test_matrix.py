"""Every estimator and objective: the answers are those of the class that trained it, or the model is refused by name.

`python -m tests.support.programs.tabular` also has the other tables and forms of the files.
"""

import pytest

from cluster_serving.protocol.errors import ModelError
from tests.support.fixtures.tabular import compare
from tests.support.payloads.trained import cat, lgbm, scikit, xgb

CASES = [case for module in (xgb, lgbm, cat, scikit) for case in module.cases() if case.is_quick]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.replace(" ", "-"))
def test_answers_are_those_of_the_class_that_trained_the_model(case, tmp_path):
    trained = case.train()
    trained.save(tmp_path)
    if case.refused:
        with pytest.raises(ModelError, match=case.refused):
            compare(trained, tmp_path)
    else:
        compare(trained, tmp_path)
