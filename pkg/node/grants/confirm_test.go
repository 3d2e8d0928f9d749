// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grants

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

func TestPartsOfContainersAreConfirmedBySignatureOrByTheCheckpointOfTheFirstRelease(t *testing.T) {
	list, err := Read(v010Checkpoint)
	if err != nil {
		t.Fatal(err)
	}
	old, other := list[0], list[1]
	unsigned := func(a Allocation) string {
		value, err := deviceinfo.EncodePod(a.PodInfo)
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
	w := newFixture()
	w.active[old.PodUID], w.active[other.PodUID] = true, true
	path := filepath.Join(t.TempDir(), "grants")
	content, err := os.ReadFile(v010Checkpoint)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	r := openAt(t, w, path)
	if _, err := r.Confirms(old.PodUID, old.Namespace, old.Name, "main", unsigned(old)); err == nil {
		t.Error("something is known before the key was read")
	}
	fresh := wants("fresh", map[types.ResourceName]int64{cards0: 1})
	w.run(fresh)
	grant(t, r, fresh)
	stranger := wants("stranger", map[types.ResourceName]int64{cards1: 1})
	lost := &fixture{key: &nodeKey{node: "node-1", keyContent: keyContent{Key: bytes.Repeat([]byte{8}, keyBytes)}}}
	for name, test := range map[string]struct {
		pod              Allocation
		container, value string
		want             bool
	}{
		"signed for the container":                   {fresh, "main", w.encoded(fresh, "main"), true},
		"signed for it, and the checkpoint is lost":  {stranger, "main", w.encoded(stranger, "main"), true},
		"signed for another container of the pod":    {fresh, "side", w.encoded(fresh, "main"), false},
		"signed for another pod":                     {stranger, "main", w.encoded(fresh, "main"), false},
		"signed with another key":                    {fresh, "main", lost.encoded(fresh, "main"), false},
		"signed, and changed":                        {fresh, "main", w.encoded(fresh, "main") + " ", false},
		"of a later release that signed it":          {fresh, "main", signedAs(w, fresh, `{"devices":1}`), true},
		"text":                                       {fresh, "main", "forged", false},
		"nothing behind the version":                 {fresh, "main", encodedVersion, false},
		"unsigned, of a pod that v0.1.0 granted":     {old, "main", unsigned(old), true},
		"the same in an init container with devices": {old, "fetch", unsigned(old), true},
		"the same in a container without devices":    {old, "log", unsigned(old), false},
		"the same in a debug container":              {old, "debugger-x", unsigned(old), false},
		"unsigned, of another pod":                   {old, "main", unsigned(other), false},
		"unsigned, of a pod that was granted nothing": {
			stranger, "main", unsigned(stranger), false,
		},
		"unsigned, of a pod that this release granted": {fresh, "main", unsigned(fresh), false},
	} {
		got, err := r.Confirms(test.pod.PodUID, test.pod.Namespace, test.pod.Name, test.container, test.value)
		if err != nil || got != test.want {
			t.Errorf("%s: %v, %v, want %v", name, got, err, test.want)
		}
	}
}

// signedAs is a part that this node has signed for the pod's container main.
func signedAs(w *fixture, pod Allocation, part string) string {
	return w.key.sign(subject{pod.PodUID, pod.Namespace, pod.Name, "main"}, part)
}

// v0.1.0 drops the field signed when it writes the file, and what it has containers carry then is
// unsigned.
func TestAContainerOfAnEarlierReleaseAfterADowngradeIsConfirmed(t *testing.T) {
	w := newFixture()
	r, path := open(t, w)
	pod := wants("a", map[types.ResourceName]int64{cards0: 1})
	grant(t, r, pod)
	w.run(pod)
	value, err := deviceinfo.EncodePod(pod.PodInfo)
	if err != nil {
		t.Fatal(err)
	}
	if own, err := r.Confirms("a", pod.Namespace, pod.Name, "main", value); err != nil || own {
		t.Errorf("before the downgrade: %v, %v", own, err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if err := r.file.Load(func(body []byte) error {
		if !bytes.Contains(body, []byte(`"signed": true`)) {
			t.Errorf("the file does not say that containers carry signed parts: %s", body)
		}
		list, err := decode(bytes.ReplaceAll(body, []byte(`"signed": true,`), nil))
		if err != nil {
			return err
		}
		return r.file.Save(content{list})
	}); err != nil {
		t.Fatal(err)
	}
	r = openAt(t, w, path)
	w.pods["a"].Containers[0].Encoded = value
	if err := r.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	if own, err := r.Confirms("a", pod.Namespace, pod.Name, "main", value); err != nil || !own {
		t.Errorf("after it: %v, %v", own, err)
	}
	if found := strings.Join(w.reasons(), " "); found != "" {
		t.Errorf("found %s", found)
	}
}
