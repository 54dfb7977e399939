"""Ready-made models, which fit themselves to the data: what `[model]` of a job file chooses.

    base     what a kind is, its sliders, and what is known of the data; knows no torch
    reading  what the fields of a data set are: pictures, tables, sequences, texts
    kinds    the list of kinds
    mlp, cnn, rnn, gpt    one kind each, in torch

Only `build` loads torch, so that a panel can list them.
"""

from crowdgrad.capture.ready.base import Column as Column
from crowdgrad.capture.ready.base import Model as Model
from crowdgrad.capture.ready.base import Ready as Ready
from crowdgrad.capture.ready.base import Slider as Slider
from crowdgrad.capture.ready.base import Told as Told
from crowdgrad.capture.ready.kinds import KINDS as KINDS
from crowdgrad.capture.ready.kinds import build as build
from crowdgrad.capture.ready.kinds import find as find
from crowdgrad.capture.ready.kinds import model_of as model_of
