// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func FuzzRemember(f *testing.F) {
	f.Add([]byte(`{"resources":["example.com/gpu"],"told":true,"pods":{"u":{"namespace":"a","name":"b","containers":[{"name":"main","init":true}],"asks":{"main":["example.com/gpu"]},"over":true}}}`))
	f.Add([]byte(`{"pods":{"u":{}}}`))
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
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-remembered +remembered again):\n%s", diff)
		}
	})
}
