// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grants

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// v010Checkpoint is the checkpoint that kubecri v0.1.0 wrote.
const v010Checkpoint = "testdata/v0.1.0.grants"

func TestTheCheckpointOfTheFirstReleaseIsRead(t *testing.T) {
	const pair = "resource/group/gpugrp1/0/gpugrp0/0/gpu/"
	want := []Allocation{{
		PodUID: "4f0c2c1e-9a37-4c0e-8d4e-1b1f0a6d2f11", Namespace: "team-a", Name: "training-0",
		Since: time.Date(2026, 1, 1, 0, 0, 0, 5, time.UTC), InitOrder: []string{"fetch", "log"},
		PodInfo: &types.PodInfo{
			Name: "training-0", NodeName: "node-1",
			InitContainers: map[string]types.ContainerInfo{
				"fetch": container(map[types.ResourceName]int64{pair + "gpu-0/memory": 1 << 30}),
			},
			RunningContainers: map[string]types.ContainerInfo{
				"main": container(map[types.ResourceName]int64{pair + "gpu-0/cards": 1, pair + "gpu-1/cards": 1}),
			},
		},
	}, {
		PodUID: "9e1f6d0a-1c61-4b5f-9b5a-2f1f6f0f7c22", Namespace: "team-b", Name: "inference",
		Since: time.Date(2026, 1, 1, 1, 0, 0, 0, time.UTC),
		PodInfo: &types.PodInfo{
			Name: "inference", NodeName: "node-1",
			RunningContainers: map[string]types.ContainerInfo{
				"server": container(
					map[types.ResourceName]int64{"resource/group/gpugrp1/1/gpugrp0/2/gpu/gpu-4/memory": 20 << 30},
				),
			},
		},
	}}
	got, err := Read(v010Checkpoint)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAllocationsWithoutNewFieldsAreWrittenAsTheFirstReleaseDid(t *testing.T) {
	want, err := os.ReadFile(v010Checkpoint)
	if err != nil {
		t.Fatal(err)
	}
	list, err := Read(v010Checkpoint)
	if err != nil {
		t.Fatal(err)
	}
	got := written(t, list)
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// withHeader returns a file with that version and body whose sum is right.
func withHeader(version, body string) []byte {
	return fmt.Appendf(nil, "kubedevice-grants %s sha256:%x\n%s", version, sha256.Sum256([]byte(body)), body)
}

func TestFieldsThatALaterReleaseAddedAreIgnored(t *testing.T) {
	want := sample()
	_, body, _ := bytes.Cut(written(t, want), []byte("\n"))
	got, err := decode(bytes.Replace(body, []byte(`"podUID"`), []byte(`"seal": {"by": "tomorrow"}, "podUID"`), 1))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestACheckpointOfAnUnknownVersionIsKeptAndMadeAgain(t *testing.T) {
	w := newFixture()
	running := wants("a", map[types.ResourceName]int64{cards0: 1})
	w.run(running)
	path := filepath.Join(t.TempDir(), "grants")
	later := withHeader("v2", `{"who": "knows"}`)
	if err := os.WriteFile(path, later, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(path); err == nil || !strings.Contains(err.Error(), `version "v2"`) {
		t.Errorf("the error does not name the version: %v", err)
	}
	r := openAt(t, w, path)
	if err := r.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := r.List(); len(got) != 1 || got[0].PodUID != "a" || !r.WasCorrupt() {
		t.Errorf("checkpoint: %v, corrupt: %v; want pod a from the runtime", got, r.WasCorrupt())
	}
	files, err := filepath.Glob(path + ".corrupt-*")
	if err != nil || len(files) != 1 {
		t.Fatalf("kept: %v, %v", files, err)
	}
	if kept, err := os.ReadFile(files[0]); err != nil || !bytes.Equal(kept, later) {
		t.Errorf("the later release does not find its file as it was: %q, %v", kept, err)
	}
}
