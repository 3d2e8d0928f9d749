// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"regexp"

	"github.com/google/pprof/profile"
)

// ownCode are the functions of this project, device schedulers included, and bindingCall the call
// of the API that upstream's scheduler makes as well.
var (
	ownCode     = regexp.MustCompile(`^github\.com/kubedevice/kubedevice/`)
	bindingCall = regexp.MustCompile(`/kubedevice/pkg/scheduler/frameworkplugin\.\(\*Plugin\)\.bind$`)
)

// ownPart returns which part of the CPU time of a profile was spent in this project's functions and
// all that they call: at extension points and for events, on all goroutines, but not in the API
// call that binds. The garbage collector's work is not counted.
func ownPart(raw []byte) (float64, error) {
	p, err := profile.ParseData(raw)
	if err != nil {
		return 0, fmt.Errorf("read a CPU profile: %w", err)
	}
	all := cpuOf(p)
	if all == 0 {
		return 0, errors.New("there is nothing in the CPU profile: give it more time, see -profile")
	}
	p.FilterSamplesByName(ownCode, bindingCall, nil, nil)
	return float64(cpuOf(p)) / float64(all), nil
}

// cpuOf returns the CPU time of a profile in nanoseconds.
func cpuOf(p *profile.Profile) (sum int64) {
	for _, sample := range p.Sample {
		sum += sample.Value[len(sample.Value)-1]
	}
	return sum
}
