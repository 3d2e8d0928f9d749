// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"math/rand/v2"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	v1helper "k8s.io/kubernetes/pkg/apis/core/v1/helper"

	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// pieces are parts of names of resources, including the limits of every rule.
var pieces = []string{
	"/", "/", ".", "-", "_", "a", "Z", "0", "ü", " ", "\n", "nvidia.com", "gpu", "kubernetes.io", "my", "requests.",
	"resource/group/", strings.Repeat("b", 60), strings.Repeat("c.", 80), "cpu", "hugepages-2Mi",
}

func TestExtendedResourcesMatchUpstream(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	extended := 0
	for range 200_000 {
		var name strings.Builder
		for range 1 + random.IntN(6) {
			name.WriteString(pieces[random.IntN(len(pieces))])
		}
		if compareWithUpstream(t, name.String()) {
			extended++
		}
	}
	if extended < 1000 {
		t.Errorf("only %d of the names are extended resources: the comparison shows little", extended)
	}
}

func FuzzExtendedResources(f *testing.F) {
	for _, seed := range []string{"nvidia.com/gpu", "mykubernetes.io/gpu", "requests.nvidia.com/gpu", "cpu", "a/b/c"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) { compareWithUpstream(t, name) })
}

func compareWithUpstream(t *testing.T, name string) bool {
	t.Helper()
	got := resource.IsExtendedResource(types.ResourceName(name))
	want := v1helper.IsExtendedResourceName(v1.ResourceName(name))
	if got != want {
		t.Fatalf("IsExtendedResource(%q) = %v, upstream says %v", name, got, want)
	}
	return got
}
