// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package written

import (
	"strings"
	"testing"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/test/kube"
)

func TestDifferencesAreThoseOfTheAllocation(t *testing.T) {
	const requests = `"gpugrp0/!A/gpu/a/cards":1,"gpugrp0/A/gpu/a/cards":1,"gpugrp0/A/gpu/b/cards":1`
	for name, test := range map[string]struct{ first, second, third, want string }{
		"as written":     {"2/gpu/g4", "0/gpu/g0", "0/gpu/g1", ""},
		"group is split": {"2/gpu/g4", "0/gpu/g0", "1/gpu/g2", "gpugrp0/A is "},
		"one is missing": {"2/gpu/g4", "0/gpu/g0", "", "gpugrp0/A/gpu/b/cards: 1 is not allocated"},
	} {
		pod := kube.NewPod("p", "")
		kube.SetRequests(pod, requests)
		read := Read(t, pod)
		var devices, from []string
		for request, device := range map[string]string{
			"!A/gpu/a": test.first, "A/gpu/a": test.second, "A/gpu/b": test.third,
		} {
			if device != "" {
				path := `"resource/group/gpugrp1/x/gpugrp0/` + request + `/cards":`
				devices = append(devices, path+"1")
				from = append(from, path+`"resource/group/gpugrp1/0/gpugrp0/`+device+`/cards"`)
			}
		}
		pod.Annotations[deviceinfo.Annotation] = `{"runningcontainer":{"main":{"devrequests":{` +
			strings.Join(devices, ",") + `},"allocatefrom":{` + strings.Join(from, ",") + `}}}}`
		for range 100 { // maps are read in any order
			found := strings.Join(read.Differences(pod), "\n")
			if !strings.Contains(found, test.want) || (found == "") != (test.want == "") {
				t.Fatalf("%s: got %q, want %q", name, found, test.want)
			}
		}
	}
}
