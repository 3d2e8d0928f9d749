// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"encoding/json"
	"fmt"
	"strings"
)

// lenient reads an annotation as a reader would that knows nothing of policies. The attempt
// succeeds if it gives a container of the pod the device.
func lenient(text, device string) (Got, error) {
	var pod struct {
		RunningContainer map[string]struct {
			DevRequests  map[string]int64
			AllocateFrom map[string]string
		}
	}
	if err := json.NewDecoder(strings.NewReader(text)).Decode(&pod); err != nil {
		return Got{RefusedByNode, err.Error()}, nil // what the reader says is the outcome
	}
	main := pod.RunningContainer["main"]
	for wanted, from := range main.AllocateFrom {
		if from == device && main.DevRequests[wanted] > 0 {
			return Got{Succeeds, "an allocation of " + device}, nil
		}
	}
	return Got{NoEffect, fmt.Sprintf("%+v", pod)}, nil
}
