"""The pages on ImageNet, transformers and detection: what they say is what code and files say."""

import inspect
import re

import pytest

from locations import ROOT
from sgdf.bench.paper.published import column, published
from sgdf.bench.spec.read import load
from sgdf.bench.tasks import find_task
from sgdf.bench.tasks.detection.coco_weights import CHECKSUM, FILE
from sgdf.bench.tasks.detection.photographs import BCCD, VOC
from sgdf.bench.tasks.images.extractors import RESNETS
from sgdf.bench.tasks.vit.layouts import LAYOUTS
from sgdf.bench.tasks.vit.task import PUBLISHED, WEIGHTS_FOLDER, WEIGHTS_URL

FOLDER = ROOT / "src/sgdf/experiments"
PAGES = {
    "imagenet": (ROOT / "docs/results/imagenet.md").read_text(),
    "vit": (ROOT / "docs/results/vit.md").read_text(),
    "detection": (ROOT / "docs/results/detection.md").read_text(),
}
SETS = ("CIFAR-10", "CIFAR-100", "Oxford-IIIT-Pets", "Oxford Flowers-102", "Food101", "ImageNet")
VIT_ROWS = dict(
    zip(SETS, ("CIFAR-10", "CIFAR-100", "Pets", "Flowers-102", "Food-101", "ImageNet"), strict=True)
)


def shown(value):
    return " ± ".join(f"{number:.2f}" for number in value)


@pytest.mark.parametrize("page", PAGES)
def test_every_experiment_of_the_folder_is_on_its_page(page):
    names = {path.stem for path in (FOLDER / page).glob("*.toml")}
    assert names
    assert all(f"`{name}`" in PAGES[page] for name in names)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_no_record_until_there_is_one(page):
    kept = (ROOT / "records" / page).exists()
    assert ("There is no record yet" in PAGES[page]) != kept


@pytest.mark.parametrize("name", ["vit/vit", "vit/vit-head", "vit/vit-search", "detection/voc"])
def test_what_is_expected_at_full_size_is_told_before_any_run(name):
    text = (FOLDER / f"{name}.toml").read_text()
    assert "\n# What is expected (written before any run):\n# - By the paper" in text
    page = PAGES[name.partition("/")[0]]
    assert re.search(
        r"^What is expected of .*, written before any run:\n\n- By the paper", page, re.M
    )


@pytest.mark.parametrize("name", ["vit", "detection"])
def test_what_machines_that_share_a_grid_have_to_copy_is_told(name):
    assert f"copy the folder `{name}` in FOLDER along" in PAGES[name]


@pytest.mark.parametrize(("task", "page"), [("vit", "vit"), ("voc", "detection"),
                                            ("bccd", "detection")])  # fmt: skip
def test_options_and_their_defaults_are_those_of_the_task(task, page):
    heads = {"vit": "option", "voc": "option of `voc`", "bccd": "option of `bccd`"}
    (table,) = re.findall(
        rf"^\| {heads[task]} \| default \|.*\n.*\n((?:\|.*\n)+)", PAGES[page], re.M
    )
    told = dict(re.findall(r"^\| `(\w+)` \| (\S+) \|", table, re.M))
    parameters = inspect.signature(find_task(task)).parameters.values()
    assert told == {
        one.name: f'`"{one.default}"`' if isinstance(one.default, str) else str(one.default).lower()
        for one in parameters
    }


@pytest.mark.parametrize("name", LAYOUTS)
def test_data_of_the_transformers_are_told_as_the_task_wants_them(name):
    layout = LAYOUTS[name]
    needs = ", ".join(f"`{one}`" for one in layout.needs)
    counts = ", ".join(f"{count:,}" for count in layout.counts)
    row = f"| `{name}` | {layout.classes} | {counts} | `{layout.folder}` | {needs} |"
    assert row in PAGES["vit"]
    for url, md5 in layout.archives.items():
        assert f"| `{url}` | {md5} |" in PAGES["vit"]


def test_files_with_weights_are_told_as_the_tasks_want_them():
    for network, file in PUBLISHED.items():
        assert f"| `{network}` | `{file}` |" in PAGES["vit"]
    assert f"`{WEIGHTS_FOLDER}`" in PAGES["vit"]
    assert f"`{WEIGHTS_URL}`" in PAGES["vit"]
    ((file, checksum),) = RESNETS["resnet20"].files.items()
    for word in (FILE, file, checksum, f"with {CHECKSUM}"):
        assert word in PAGES["detection"]


def test_photographs_are_told_as_the_tasks_want_them():
    archives = re.findall(r"(\w{32})  http://\S+?/VOC/(\S+)", VOC.origin)
    assert len(archives) == 3
    assert all(f"| `{name}` | {md5} |" in PAGES["detection"] for md5, name in archives)
    for task, photographs in (("voc", VOC), ("bccd", BCCD)):
        counts = [f"{photographs.counts[split]:,}" for split in ("train", "validation", "test")]
        row = " | ".join([f"| `{task}`", *counts])
        assert re.search(rf"^{re.escape(row)}\b", PAGES["detection"], re.M)
        folders = {folder for parts in photographs.splits.values() for folder, _ in parts}
        assert all(f"`{folder}`" in PAGES["detection"] for folder in folders)


def test_printed_accuracies_of_the_transformers_are_the_published_ones():
    for name, row in VIT_ROWS.items():
        cells = [
            shown(column("tab:vitresult", f"{network}, {name}").values[optimizer])
            for network in ("ViT-B/32", "ViT-L/32")
            for optimizer in ("SGDF", "SGD")
        ]
        assert f"| {row} | {' | '.join(cells)} |" in PAGES["vit"]


def test_printed_accuracies_on_imagenet_are_the_published_ones():
    tables = {"tab:resnet18_imagenet", "tab:more_imagenet"}
    columns = [one for one in published() if one.label in tables and one.metric == "accuracy"]
    assert len(columns) == 7
    for one in columns:
        cells = f"{shown(one.values['SGDF'])} | {shown(one.values['SGD'])} |"
        assert f"| {cells}" in PAGES["imagenet"]


def test_printed_precisions_are_the_published_ones_and_quotes_are_marked():
    printed = column("tab:object_detection", "PASCAL VOC 2007 test")
    for name, value in printed.values.items():
        mark = r"quoted: .+" if name in printed.quoted else ""
        assert re.search(rf"^\| {name} \| {shown(value)} \| {mark} ?\|$", PAGES["detection"], re.M)


@pytest.mark.parametrize(
    ("page", "sentence", "name"),
    [
        ("vit", "three seeds: {} runs.", "vit"),
        ("vit", "`vit-head` has {}, too", "vit-head"),
        ("vit", "# all of it: {} runs", "vit"),
        ("detection", "# all of it: {} runs", "voc"),
        ("imagenet", "# all of it: {} runs", "imagenet"),
        ("imagenet", "| `imagenet-runtime` | {} |", "imagenet-runtime"),
    ],
)
def test_numbers_of_runs_are_those_of_the_experiments(page, sentence, name):
    assert sentence.format(len(load(name).runs)) in PAGES[page]
