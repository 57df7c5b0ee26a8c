"""The finished parts of the tests of training, for processes that train together."""

from tests.unit.training.conftest import make_split as make_split
from tests.unit.training.conftest import make_step as make_step
from tests.unit.training.conftest import make_trainer as make_trainer
