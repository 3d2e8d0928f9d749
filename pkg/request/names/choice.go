// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package names

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// GPUs is the extended resource that counts the GPUs of which a [Choice] leaves some out.
const GPUs = types.ResourceName(gpus)

// maxChoice is how long the value of an annotation that chooses GPUs may be, in bytes: the UUIDs of
// 100 GPUs.
const maxChoice = 4096

// Choice says which GPUs a pod may get, as HAMi's annotations say it. It is comparable; the zero
// value is for any GPU.
type Choice struct {
	// use and noUse are lists of models, uuids and noUUIDs lists of IDs, as they are written.
	use, noUse, uuids, noUUIDs string
}

// ChoiceOf returns the choice of a pod. What [Compile] has an error for is not in it.
func ChoiceOf(pod *corev1.Pod) Choice {
	if len(pod.Annotations) == 0 {
		return Choice{}
	}
	value := func(key string) string {
		written := pod.Annotations[key]
		if written == "" || checkChoice(written) != "" {
			return ""
		}
		return written
	}
	return Choice{value(useType), value(noUseType), value(useUUID), value(noUseUUID)}
}

// checkChoice returns what is wrong with the value of an annotation that chooses GPUs, or "".
func checkChoice(value string) string {
	if len(value) > maxChoice {
		return "the list is longer than 4096 bytes: write fewer names"
	}
	if elements := strings.Split(value, ","); slices.ContainsFunc(elements, isBlank) {
		return "write one name or more, separated by commas, or remove it"
	}
	return ""
}

func isBlank(text string) bool { return strings.TrimSpace(text) == "" }

// Any reports whether the pod may get any GPU.
func (c Choice) Any() bool { return c == Choice{} }

// ByModel reports whether the models of GPUs matter.
func (c Choice) ByModel() bool { return c.use != "" || c.noUse != "" }

// Keys returns the annotations that the choice is made of.
func (c Choice) Keys() (keys []string) {
	for _, part := range []struct{ value, key string }{
		{c.use, useType}, {c.noUse, noUseType}, {c.uuids, useUUID}, {c.noUUIDs, noUseUUID},
	} {
		if part.value != "" {
			keys = append(keys, part.key)
		}
	}
	return keys
}

// Text identifies the choice: different choices have different texts.
func (c Choice) Text() string {
	return strings.Join([]string{c.use, c.noUse, c.uuids, c.noUUIDs}, "\x00")
}

// Has reports whether a pod may get the GPU of that ID and model. An element of a list of models
// stands for all models that contain it, in any case. A model that is not known, "", may be any: a
// pod that chooses by models does not get the GPU.
func (c Choice) Has(id, model string) bool {
	isModel := func(element string) bool {
		return strings.Contains(strings.ToUpper(model), strings.ToUpper(element))
	}
	isID := func(element string) bool { return element == id }
	switch {
	case c.ByModel() && model == "":
		return false
	case c.use != "" && !anyOf(c.use, isModel), c.noUse != "" && anyOf(c.noUse, isModel):
		return false
	case c.uuids != "" && !anyOf(c.uuids, isID), c.noUUIDs != "" && anyOf(c.noUUIDs, isID):
		return false
	}
	return true
}

// anyOf reports whether a condition is true of an element of a list, without the spaces around it.
func anyOf(list string, is func(string) bool) bool {
	for element := range strings.SplitSeq(list, ",") {
		if is(strings.TrimSpace(element)) {
			return true
		}
	}
	return false
}
