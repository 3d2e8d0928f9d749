// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package names

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// GPUs is the extended resource that counts the GPUs of which a [Choice] leaves some out.
const GPUs = types.ResourceName(gpus)

// maxChoice is how long the value of an annotation that chooses GPUs may be, in bytes: the UUIDs of
// 100 GPUs.
const maxChoice = 4096

// Choice says which GPUs a pod may get, as HAMi's annotations say it, and by what it must be held
// to shares of devices, as its annotation [deviceinfo.LeastEnforcementAnnotation] says. It is
// comparable; the zero value is for any GPU, and for shares that are counted.
type Choice struct {
	// use and noUse are lists of models, uuids and noUUIDs lists of IDs, as they are written.
	use, noUse, uuids, noUUIDs string
	// least is empty if shares may be counted. Otherwise onExceeded is the pod's annotation
	// KubeDevice/OnShareExceeded.
	least      deviceinfo.Enforcement
	onExceeded string
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
	choice := Choice{use: value(useType), noUse: value(noUseType), uuids: value(useUUID), noUUIDs: value(noUseUUID)}
	least := pod.Annotations[deviceinfo.LeastEnforcementAnnotation]
	if deviceinfo.CheckLeastEnforcement(least) == nil && least != string(deviceinfo.Counted) {
		choice.least = deviceinfo.Enforcement(least)
		choice.onExceeded = pod.Annotations[deviceinfo.OnShareExceededAnnotation]
	}
	return choice
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

// Any reports whether the pod may get any GPU, and any share.
func (c Choice) Any() bool { return c == Choice{} }

// Least returns by what the pod must be held to shares at least.
func (c Choice) Least() deviceinfo.Enforcement { return cmp.Or(c.least, deviceinfo.Counted) }

// MayShare reports whether the pod may get a share of a device, by its path without its prefix, of
// a node that holds containers to shares as of says.
func (c Choice) MayShare(path string, of deviceinfo.ShareEnforcement) bool {
	return of.Of(path, c.onExceeded).Satisfies(c.Least())
}

// ByModel reports whether the models of GPUs matter.
func (c Choice) ByModel() bool { return c.use != "" || c.noUse != "" }

// Strongest returns the strongest enforcement by which a node can hold the pod to a share of any
// device.
func (c Choice) Strongest(of deviceinfo.ShareEnforcement) deviceinfo.Enforcement {
	strongest := deviceinfo.Counted
	for device := range of.Devices {
		if e := of.Of(device, c.onExceeded); e.Satisfies(strongest) {
			strongest = e
		}
	}
	return strongest
}

// Keys returns the annotations that choose GPUs.
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
	return strings.Join([]string{c.use, c.noUse, c.uuids, c.noUUIDs, string(c.least), c.onExceeded}, "\x00")
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
