"""The Go verifier of the Cosmos ecosystem accepts our proofs, and refuses what ours refuses."""

import hashlib
import json
import os
import shutil
import subprocess
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from chainlake.merkle.ics23 import SMT_SPEC, ExistenceProof, NonExistenceProof
from chainlake.merkle.smt import Proof, leaf_hash, path_of, prove, root, verify
from chainlake.merkle.smt_fold import Folded, Update, fold
from chainlake.merkle.smt_nodes import Node
from chainlake.merkle.smt_prove import prove_stored

MODULE = "github.com/cosmos/ics23/go v0.11.0"
GO_MOD = f"module verify\n\ngo 1.21\n\nrequire {MODULE}\n"
MAIN = """package main

import (
	"encoding/hex"
	"encoding/json"
	"os"

	ics23 "github.com/cosmos/ics23/go"
)

type question struct{ Root, Key, Value, Proof []byte }

func answer(q question) bool {
	proof := &ics23.CommitmentProof{}
	if proof.Unmarshal(q.Proof) != nil {
		return false
	}
	again, err := proof.Marshal()
	if err != nil || string(again) != string(q.Proof) {
		return false
	}
	if len(q.Value) == 0 {
		return ics23.VerifyNonMembership(ics23.SmtSpec, q.Root, proof, q.Key)
	}
	return ics23.VerifyMembership(ics23.SmtSpec, q.Root, proof, q.Key, q.Value)
}

func main() {
	var questions []question
	if err := json.NewDecoder(os.Stdin).Decode(&questions); err != nil {
		panic(err)
	}
	answers := []bool{}
	for _, q := range questions {
		answers = append(answers, answer(q))
	}
	spec, err := ics23.SmtSpec.Marshal()
	if err != nil {
		panic(err)
	}
	json.NewEncoder(os.Stdout).Encode(map[string]any{"answers": answers, "spec": hex.EncodeToString(spec)})
}
"""
BUILD_SECONDS = 240

Question = tuple[bytes, bytes, bytes | None, Proof]


@pytest.fixture(scope="module")
def verifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Go program, built with the module from the proxy."""
    if not shutil.which("go"):
        pytest.skip("Go is not installed")
    folder = tmp_path_factory.mktemp("ics23")
    (folder / "go.mod").write_text(GO_MOD)
    (folder / "main.go").write_text(MAIN)
    environment = {**os.environ, "GOFLAGS": "-mod=mod", "GOWORK": "off", "CGO_ENABLED": "0"}
    command = ["go", "build", "-p", "1", "-o", "verify", "."]
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=BUILD_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"go build did not finish in {BUILD_SECONDS} s")
    if done.returncode:
        pytest.skip(f"the module {MODULE} could not be built: {done.stderr.strip()[-300:]}")
    return folder / "verify"


def ask(program: Path, questions: list[Question]) -> Any:
    encoded = [
        {"Root": base64(goal), "Key": base64(key), "Value": base64(value or b""), "Proof": base64(proof.to_bytes())}
        for goal, key, value, proof in questions
    ]
    done = subprocess.run([str(program)], input=json.dumps(encoded), capture_output=True, text=True, timeout=60, check=True)
    return json.loads(done.stdout)


def base64(data: bytes) -> str:
    return b64encode(data).decode()


def items_of(count: int) -> dict[bytes, bytes]:
    keys = [hashlib.sha256(number.to_bytes(4, "big")).digest() for number in range(count)]
    return {key: b"metadata of " + key[:3] for key in keys}


def stored_proof(folded: Folded, items: dict[bytes, bytes], key: bytes) -> Proof:
    below: dict[str, list[Node]] = {}
    for row in folded.nodes:
        if row.prefix:
            below.setdefault(row.prefix[:-1], []).append(row)
    return prove_stored(
        folded.tops[-1], lambda prefixes: [row for one in prefixes for row in below.get(one, [])], key, items.__getitem__
    )


def good_questions() -> list[Question]:
    """Every key of small trees, some of a large one, and keys between, left and right of them."""
    found: list[Question] = []
    for count in (1, 2, 3, 30, 800):
        items = items_of(count)
        goal = root(items)
        folded = fold([], [Update(1, key, leaf_hash(key, value)) for key, value in items.items()])
        assert folded.tops[-1].hash == goal
        absent = [b"absent %d" % number for number in range(60)]
        for key in [*list(items)[:60], *absent]:
            found.append((goal, key, items.get(key), stored_proof(folded, items, key)))
    return found


def bad_questions() -> list[Question]:
    """True proofs for something else, and neighbours with a key between them."""
    items = items_of(30)
    goal, ordered = root(items), sorted(items, key=path_of)
    proofs = [existence(items, key) for key in ordered]
    one, two, three = ordered[10:13]
    around = NonExistenceProof(two, proofs[10], proofs[12])
    return [
        (goal, one, b"other", Proof(exist=proofs[10])),
        (goal, two, items[two], Proof(exist=proofs[10])),
        (root(items_of(31)), one, items[one], Proof(exist=proofs[10])),
        (goal, two, None, Proof(nonexist=around)),
        (goal, three, None, Proof(nonexist=NonExistenceProof(three, proofs[11], None))),
        (goal, one, None, Proof(nonexist=NonExistenceProof(one, None, proofs[11]))),
        (goal, one, None, Proof(nonexist=NonExistenceProof(one))),
        (goal, one, None, Proof(exist=proofs[10])),
    ]


def existence(items: dict[bytes, bytes], key: bytes) -> ExistenceProof:
    found = prove(items, key).exist
    assert found is not None
    return found


def test_go_accepts_our_proofs_refuses_false_ones_and_has_the_same_spec(verifier: Path) -> None:
    good, bad = good_questions(), bad_questions()
    said = ask(verifier, good + bad)
    assert said["spec"] == SMT_SPEC.to_bytes().hex()
    assert said["answers"] == [True] * len(good) + [False] * len(bad)
    assert said["answers"] == [verify(*question) for question in good + bad]
