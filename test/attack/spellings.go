// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
)

// spellings are attempts to write an allocation that a policy does not see and a node reads. Their
// defence is a decoder that reads nothing of the kind; without it is encoding/json.
func spellings() []*Attempt {
	var attempts []*Attempt
	for _, spelling := range []struct {
		id, what, refusal string
		how               func(text string) string
	}{
		{"spell-capitals", "writes an allocation in capitals", noSeal, func(text string) string {
			return strings.NewReplacer("allocatefrom", "ALLOCATEFROM", "devrequests", "DEVREQUESTS").Replace(text)
		}},
		{"spell-mixed-case", "writes them in mixed case", noSeal, func(text string) string {
			return strings.NewReplacer("allocatefrom", "AllocateFrom", "devrequests", "DevRequests").Replace(text)
		}},
		{"spell-folded", "writes them with the letter ſ, which folds to s", noSeal, func(text string) string {
			return strings.NewReplacer("allocatefrom", "allocateFrom", "devrequests", "devrequeſtſ").Replace(text)
		}},
		{"spell-twice", "writes a field twice, of which a reader may take the second", "occurs twice",
			func(text string) string {
				return strings.Replace(text, `"allocatefrom":`, `"allocatefrom":{},"allocatefrom":`, 1)
			}},
		{"spell-trailing", "writes a second value behind the allocation", "not JSON",
			func(text string) string { return text + `{}` }},
		{"spell-container-twice", "writes a container twice", "occurs twice", func(text string) string {
			return strings.Replace(text, `"main":`, `"main":{},"main":`, 1)
		}},
	} {
		attempts = append(attempts, &Attempt{
			ID: spelling.id, Who: Tenant, What: spelling.what, Defence: Decoder,
			Try: createForged(func(s *Stage, pod *corev1.Pod) {
				pod.Annotations[deviceinfo.Annotation] = spelling.how(s.allocation(pod.Name))
			}),
			Want: policyElse(mayWrite, Want{RefusedByNode, spelling.refusal}),
			Off: Off{
				How: "the text is read by encoding/json, which takes it for an allocation",
				Try: func(_ context.Context, s *Stage) (Got, error) {
					return lenient(spelling.how(s.allocation("forged")), string(s.card))
				},
			},
		})
	}
	escape := func(id, what string, words ...string) *Attempt {
		return &Attempt{
			ID: id, Who: Tenant, What: what, Defence: Policies,
			Try: createForged(func(s *Stage, pod *corev1.Pod) {
				pod.Annotations[deviceinfo.Annotation] = escaped(s.allocation(pod.Name), words...)
			}),
			Want: policyElse(mayWrite, Want{RefusedByNode, noSeal}),
		}
	}
	return append(attempts,
		escape("spell-escaped-letter", "writes one word of an allocation with an escaped letter", "allocatefrom"),
		escape("spell-escaped", "writes all its names in escaped letters", "allocatefrom", "devrequests", "nodename"),
	)
}

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

// escaped writes every letter of the words as a number.
func escaped(text string, words ...string) string {
	for _, word := range words {
		var letters strings.Builder
		for _, letter := range word {
			fmt.Fprintf(&letters, `\u%04x`, letter)
		}
		text = strings.ReplaceAll(text, word, letters.String())
	}
	return text
}
