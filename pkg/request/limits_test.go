// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package request

import (
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/kubedevice/kubedevice/deploy"
)

func TestReservedWordsAreThoseOfThePolicy(t *testing.T) {
	content, err := deploy.Policies.ReadFile("policies/kubedevice-pod-allocations.yaml")
	if err != nil {
		t.Fatal(err)
	}
	policy, _, _ := strings.Cut(string(content), "\n---\n")
	var read struct {
		Spec struct {
			Variables []struct{ Name, Expression string }
		}
	}
	if err := yaml.Unmarshal([]byte(policy), &read); err != nil {
		t.Fatal(err)
	}
	for _, variable := range read.Spec.Variables {
		if variable.Name == "reserved" {
			if want := "r'" + reserved.String() + "'"; variable.Expression != want {
				t.Errorf("the policy has %s, this package %s", variable.Expression, want)
			}
			return
		}
	}
	t.Error("the policy has no variable reserved")
}

func TestReservedWordsAreFoundInAnyCase(t *testing.T) {
	got := Reserved(`{"NodeName": "a\b"}`)
	if want := [][]int{{2, 10}, {15, 16}}; !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("%v, want %v", got, want)
	}
}
