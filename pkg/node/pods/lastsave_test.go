// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestAChangeAtTheLastMomentIsSaved(t *testing.T) {
	for range 30 { // which of the two is noticed first is left to chance
		path := filepath.Join(t.TempDir(), "pods.json")
		synctest.Test(t, func(t *testing.T) {
			r := NewRegistry(time.Second)
			ctx, cancel := context.WithCancel(t.Context())
			var saving sync.WaitGroup
			saving.Go(func() { r.KeepSaved(ctx, path) })
			synctest.Wait() // it waits for a change
			r.set("u", Pod{Containers: []Container{{Name: "main"}}})
			cancel()
			saving.Wait()
		})
		again := NewRegistry(time.Second)
		if err := again.Load(path); err != nil {
			t.Fatal(err)
		}
		if _, known := again.Get("u"); !known {
			t.Fatal("a pod that came just before the end is forgotten")
		}
	}
}
