// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kubedevice/kubedevice/pkg/node/statefile"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

func TestReadsTheFileOfAnEarlierRelease(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pods")
	written, err := os.ReadFile("testdata/pods.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path+".json", written, 0o600); err != nil {
		t.Fatal(err)
	}
	want := savedPods{
		Resources: []types.ResourceName{"example.com/gpu", "example.com/nic"}, AllKnown: true,
		Pods: map[string]Pod{
			"4f0c2c1e-9a37-4c0e-8d4e-1b1f0a6d2f11": {
				Namespace: "team-a", Name: "training-0",
				Containers: []Container{
					{Name: "fetch", Init: true},
					{Name: "log", Init: true, Always: true},
					{Name: "main"},
				},
				Requests: map[string][]types.ResourceName{"main": {"example.com/gpu", "example.com/nic"}},
			},
			"9e1f6d0a-1c61-4b5f-9b5a-2f1f6f0f7c22": {
				Namespace: "team-b", Name: "done", Containers: []Container{{Name: "main"}}, Ended: true,
			},
		},
	}
	for _, file := range []string{"of the earlier release", "of this one"} {
		r := NewRegistry(time.Second)
		if err := r.Load(path); err != nil {
			t.Fatal(err)
		}
		got, _ := r.content()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("from the file %s (-want +got):\n%s", file, diff)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		r.KeepSaved(ctx, path)
		if _, err := os.Stat(path + ".json"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the file of the earlier release: %v, want none", err)
		}
	}
}

func TestCorruptFileIsAnErrorOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pods")
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := NewRegistry(time.Second)
	if err := r.Load(path); !errors.Is(err, statefile.ErrCorrupt) {
		t.Errorf("loaded: %v, want ErrCorrupt", err)
	}
	if err := r.Load(path); err != nil {
		t.Errorf("without the file: %v", err)
	}
}

func TestSavesAChangeDuringTheLastWrite(t *testing.T) {
	for range 30 { // the order of change and end is random
		dir := t.TempDir()
		path := filepath.Join(dir, "pods")
		r := NewRegistry(time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		var saving sync.WaitGroup
		saving.Go(func() { r.KeepSaved(ctx, path) })
		for limit := time.Now().Add(20 * time.Second); ; runtime.Gosched() {
			if entries, err := os.ReadDir(dir); err != nil || time.Now().After(limit) {
				t.Fatalf("nothing is written: %v", err)
			} else if len(entries) > 0 {
				break // KeepSaved read the content before
			}
		}
		r.set("u", Pod{Containers: []Container{{Name: "main"}}})
		cancel()
		saving.Wait()
		again := NewRegistry(time.Second)
		if err := again.Load(path); err != nil {
			t.Fatal(err)
		}
		if _, known := again.Get("u"); !known {
			t.Fatal("a pod added just before the end is lost")
		}
	}
}

func FuzzRemember(f *testing.F) {
	f.Add(
		[]byte(
			`{"resources":["example.com/gpu"],"told":true,"pods":{"u":{"namespace":"a","name":"b",` +
				`"containers":[{"name":"main","init":true}],"asks":{"main":["example.com/gpu"]},"over":true}}}`,
		),
	)
	f.Add([]byte(`{"pods":{"u":{}}}`))
	f.Add([]byte(`{"pods":{"u":{"containers":[{}],"asks":{}}}}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		first := NewRegistry(time.Second)
		if err := first.remember(raw); err != nil {
			return
		}
		want, _ := first.content()
		for uid, pod := range want.Pods {
			if len(pod.Containers) == 0 {
				t.Errorf("pod %q is remembered without its containers", uid)
			}
		}
		again, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		second := NewRegistry(time.Second)
		if err := second.remember(again); err != nil {
			t.Fatal(err)
		}
		got, _ := second.content()
		// The file omits empty fields.
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("(-remembered +remembered again):\n%s", diff)
		}
	})
}
