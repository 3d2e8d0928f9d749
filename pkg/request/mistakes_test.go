// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package request

import (
	"slices"
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

		`"gpu/a/cards":2`: {main + `requests["gpu/a/cards"]: it is for 2 of one device, which has 1: write a request ` +
			`with a placeholder of its own for each device, or count them`},
		`"numa/strict":1`: {main + `requests["numa/strict"]: no device scheduler reads this request, and it has no ` +
			`effect`},

		`"smarter-devices/video0":1`: nil, // a count
		`"fpga/a/slots":1,"resource/group/fpga/a/slots":2`: {main + `requests["fpga/a/slots"]: ` +
			`resource/group/fpga/a/slots is the same request and has 2: the 1 here has no effect, remove one`},
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
		`{"initcontainer":{"i":{"requests":{"x.com/a":1},"scorer":{"x.com/a":1}}}}`: {
			`initcontainer["i"].scorer["x.com/a"]: it is no path of a device, and the scorer has no effect: remove it`},
		`{"initcontainer":{"i":{"requests":{"numa/A/x.com:a":1},"scorer":{"numa/A/x.com:a":1}}}}`: {
			`initcontainer["i"].scorer["numa/A/x.com:a"]: devices of kubelet device plugins have no scorers, and it ` +
				`has no effect: remove it`},
		`{"requests":{"gpu/a/cards":1,"nvidia.com/gpu":1,"numa/A/x.com:nic/=n/device":0}}`: nil, // errors
		`{"requests":{"vendor/mode":1}}`: {
			`requests["vendor/mode"]: a pod as a whole gets no devices: write the request under one of its containers`},
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
