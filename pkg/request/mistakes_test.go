// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package request

import (
	"slices"
	"strings"
	"testing"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

func TestMistakesAreNamedWithWhatToWrite(t *testing.T) {
	const main = `runningcontainer["main"].`
	for requests, want := range map[string][]string{
		`"gpu/a/cards":1,"nvidia.com/gpu":1,"gpu/a/memory":"20Gi"`: nil,
		`"gpu/gpu-generate-topologie":0`: {main + `requests["gpu/gpu-generate-topologie"]: no device scheduler reads ` +
			`this request, and it has no effect; did you mean "gpu/gpu-generate-topology"?`},
		`"gpu/a/memory":20480`: {main + `requests["gpu/a/memory"]: it is for 20480 bytes, less than 1 MiB: write the ` +
			`unit, such as "20Gi"`},
		`"gpu/a/memory":1048576`: nil,

		`"smarter-devices/video0":1`: nil, // a count
		`"gpu/a/cards":1,"resource/group/gpu/a/cards":2`: {main + `requests["gpu/a/cards"]: ` +
			`resource/group/gpu/a/cards is the same request and has 2: the 1 here has no effect, remove one`},
		`"gpu/a/cards":1,"resource/group/gpu/a/cards":1`: nil,
	} {
		text := `{"runningcontainer":{"main":{"requests":{` + requests + `}}}}`
		if got := mistakesIn(t, text); !slices.Equal(got, want) {
			t.Errorf("%s:\n%q, want\n%q", text, got, want)
		}
	}
	for text, want := range map[string][]string{
		`{"$schema":"x"}`:             nil,
		`{"runningcontainers":{}}`:    {`runningcontainers: the field is not read; did you mean "runningcontainer"?`},
		`{"policy":{},"requests":{}}`: {`policy: the field is not read`},
		`{"initcontainer":{"i":{"requests":{"a/b/c":1},"scorer":{"a/b/d":1}}}}`: {
			`initcontainer["i"].scorer["a/b/d"]: the container does not request it, and the scorer has no effect; ` +
				`did you mean "a/b/c"?`},
		`{"requests":{"gpu/a/cards":1,"numa/A/x.com:nic/=n/device":0}}`: {
			`requests["gpu/a/cards"]: a pod as a whole gets no devices: write the request under one of its containers`},
	} {
		if got := mistakesIn(t, text); !slices.Equal(got, want) {
			t.Errorf("%s:\n%q, want\n%q", text, got, want)
		}
	}
}

// mistakesIn returns the texts of the mistakes in an annotation, other than options that are
// published.
func mistakesIn(t *testing.T, text string) (found []string) {
	t.Helper()
	written, source, err := deviceinfo.LocatePod(text)
	if err != nil {
		t.Fatal(err)
	}
	for _, mistake := range Mistakes(written, source) {
		if source.Offset(mistake.Field) == 0 {
			t.Errorf("%s: the field %s has no place", text, mistake.Field)
		}
		found = append(found, mistake.String())
	}
	return found
}

func TestAMalformedPathIsAnErrorWithItsSpelling(t *testing.T) {
	for request, want := range map[types.ResourceName]string{
		"gpu/a/cards": "", "gpu/gpu-generate-topology": "", "resource/group/gpu/gpu-generate-topology": "",
		"nvidia.com/gpu": "", "resource/group/tokens": "", "numa/A/nvidia.com:gpu": "",
		"smarter-devices/video0": "", "numa/A/smarter-devices:video0": "",
		"numa/A/smarter-devices/video0": "write numa/A/smarter-devices:video0",

		"numa/A/nvidia.com/gpu":  "write numa/A/nvidia.com:gpu",
		"numa/!A/nvidia.com:gpu": "name them, such as numa/=0/nvidia.com:gpu", "gpugrp0/!A/gpu/!a/cards": "",
		"numa/!A/nvidia.com:gpu/0/device": "name them, such as numa/=0/nvidia.com:gpu",
		"gpu/a/b/cards":                   "write <level>/<placeholder>/…/<resource>, such as gpugrp0/A/gpu/a/cards",
	} {
		err := CheckName(request)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", request, err, want)
		}
		for _, pod := range []types.PodInfo{
			{Requests: types.ResourceList{request: 1}},
			{InitContainers: map[string]types.ContainerInfo{"i": {Requests: types.ResourceList{request: 1}}}},
			{RunningContainers: map[string]types.ContainerInfo{"r": {Requests: types.ResourceList{request: 1}}}},
		} {
			if refused := CheckRequests(&pod) != nil; refused != (want != "") {
				t.Errorf("%v is refused: %v", pod, refused)
			}
		}
	}
}

func TestTheNameOfAnExtendedResourceIsACountUnlessItBeginsWithALevel(t *testing.T) {
	for name, want := range map[types.ResourceName]bool{
		"nvidia.com/gpu": true, "smarter-devices/video0": true, "x/y": true, "gpus/a": true,
		"gpu/gpu-generate-topology": false, "gpu/a": false, "gpugrp0/A": false, "numa/A": false, "gpu": false,
		"resource/group": false, "resource/group/gpu/gpu-generate-topology": false, "gpu/a/cards": false,
		"kubernetes.io/x": false, "UPPER/x": false,
	} {
		if IsCount(name) != want {
			t.Errorf("%s is a count: %v, want %v", name, !want, want)
		}
	}
}
