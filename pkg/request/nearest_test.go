// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package request

import (
	"strings"
	"testing"
)

func TestTheNearestWordIsFound(t *testing.T) {
	known := []string{"main", "side", "runningcontainer", "nvidia.com/gpu", "memory"}
	for word, want := range map[string]string{
		"mian": "main", "man": "main", "RunningContainer": "runningcontainer", "nvida.com/gpus": "nvidia.com/gpu",
		"memmory": "memory", "mem": "", "worker": "", "": "", "main": "", strings.Repeat("m", maxWord+1): "",
	} {
		if got := Nearest(word, known); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", word, got, want)
		}
	}
	for _, d := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"abc", "", 3}, {"", "abc", 3}, {"abcd", "bacd", 1}, {"kitten", "sitting", 3}, {"ca", "abc", 3}} {
		if got := distance(d.a, d.b); got != d.want {
			t.Errorf("distance(%q, %q) = %d, want %d", d.a, d.b, got, d.want)
		}
	}
}
