"""Looks at deploy/ with the tools of those it is for. Each subcommand prints what it found or ends with what is wrong.

    render VALUES_JSON   the chart's manifests, rendered by Helm's library, as JSON
    validate             the manifests against Kubernetes' schemas (strictly) and KEDA's models; Helm's lint
    compose              compose.yml against the Compose specification
"""

import json
import pathlib
import sys

import yaml

DEPLOY = pathlib.Path(__file__).resolve().parents[2] / "deploy"
CHART = DEPLOY / "helm" / "muster"


def render(values):
    import helm_python

    with helm_python.Chart.load(str(CHART)) as chart:
        files = chart.render(values, name="muster", namespace="muster")
    documents = []
    for name, text in sorted(files.items()):
        if name.endswith(".yaml"):
            documents += [d for d in yaml.safe_load_all(text) if d]
    return documents


def validate():
    import helm_python
    import kubernetes_validate
    from cloudcoil.models.keda import v1alpha1

    said = helm_python.lint(str(CHART), strict=True)
    assert not said.get("errors"), said
    seen = 0
    two = {"worker": {"pools": [{"name": p, "slots": 2, "min": 1, "max": 3} for p in ("default", "gpu")]}}
    for values in ({}, {"keda": False}, {"blobs": {"existingClaim": "mine"}}, two):
        for document in render(values):
            kind = document["kind"]
            if document["apiVersion"].startswith("keda.sh/"):
                model = getattr(v1alpha1, kind)
                parsed = model.model_validate(document).model_dump(exclude_none=True, by_alias=True)
                lost = set(document["spec"]) - set(parsed["spec"])
                assert not lost, f"{kind}: KEDA knows no {lost}"
            else:
                kubernetes_validate.validate(document, "1.37", strict=True)
            seen += 1
    wrong = render({"terminationGracePeriodSeconds": "soon"})
    try:
        for document in wrong:
            if document["apiVersion"] == "apps/v1":
                kubernetes_validate.validate(document, "1.37", strict=True)
    except kubernetes_validate.ValidationError:
        print(f"{seen} manifests")
    else:
        raise AssertionError("a wrong manifest was not refused")


def compose():
    import compose_spec

    text = (DEPLOY / "compose.yml").read_text()
    compose_spec.ComposeSpecification.model_validate(yaml.safe_load(text))
    print(", ".join(sorted(yaml.safe_load(text)["services"])))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["render", values]:
            json.dump(render(json.loads(values)), sys.stdout)
        case ["validate"]:
            validate()
        case ["compose"]:
            compose()
        case _:
            sys.exit(__doc__)
