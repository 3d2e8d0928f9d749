// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"
)

func TestAChangeThatComesWhileTheFileIsWrittenForTheLastTimeIsSaved(t *testing.T) {
	for range 30 { // which of change and end is noticed first is left to chance
		dir := t.TempDir()
		path := filepath.Join(dir, "pods.json")
		r := NewRegistry(time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		var saving sync.WaitGroup
		saving.Go(func() { r.KeepSaved(ctx, path) })
		for limit := time.Now().Add(20 * time.Second); ; runtime.Gosched() {
			if entries, err := os.ReadDir(dir); err != nil || time.Now().After(limit) {
				t.Fatalf("nothing is written: %v", err)
			} else if len(entries) > 0 {
				break // what is written was read before
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
			t.Fatal("a pod that came just before the end is forgotten")
		}
	}
}
