// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	apiresource "k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubedevice/kubedevice/pkg/sdk/device"
)

// ContextMemory is how many bytes of a device's memory the context of a process takes at most, by
// the device's model. A process needs its context also if it allocates nothing, so that much of
// each process's memory does not count against the share of its container. A key is a part of the
// model's name, such as H100; upper and lower case are the same, and of several the longest one
// counts. AnyModel is for all other devices; without it, their contexts count.
type ContextMemory map[string]int64

// AnyModel is the key of ContextMemory for devices that no other key is for.
const AnyModel = "*"

// MaxContexts is of how many processes of a container the contexts do not count, on each device: a
// container could else take any amount of memory by processes that do nothing.
const MaxContexts = 16

// DefaultContextMemory returns what counts where nothing else is configured. An H100's was
// measured, with driver 580.159.04. The one of other models is more than that: it is better to let
// some memory pass than to take a context for use.
func DefaultContextMemory() ContextMemory {
	return ContextMemory{AnyModel: 1 << 30, "H100": 518 << 20}
}

// Of returns the bytes for a device of the model, which is empty if it is not known.
func (m ContextMemory) Of(model string) int64 {
	model = strings.ToLower(model)
	longest, bytes := "", m[AnyModel]
	for part, of := range m {
		if part != AnyModel && len(part) > len(longest) && strings.Contains(model, strings.ToLower(part)) {
			longest, bytes = part, of
		}
	}
	return bytes
}

// String implements pflag.Value.
func (m *ContextMemory) String() string {
	var texts []string
	for _, part := range slices.Sorted(maps.Keys(*m)) {
		texts = append(texts, part+"="+apiresource.NewQuantity((*m)[part], apiresource.BinarySI).String())
	}
	return strings.Join(texts, ",")
}

// Type implements pflag.Value.
func (m *ContextMemory) Type() string { return "model=quantity,..." }

// Set implements pflag.Value: it replaces all entries. Its error names the entry.
func (m *ContextMemory) Set(text string) error {
	read := ContextMemory{}
	for entry := range strings.SplitSeq(text, ",") {
		if strings.TrimSpace(entry) == "" {
			continue
		}
		part, written, _ := strings.Cut(entry, "=")
		part = strings.TrimSpace(part)
		quantity, err := apiresource.ParseQuantity(strings.TrimSpace(written))
		_, twice := read[part]
		if err != nil || part == "" || twice || quantity.Sign() < 0 {
			return fmt.Errorf("%q is not a part of a model's name, which stands once, with a quantity, such as "+
				"H100=518Mi", entry)
		}
		read[part] = quantity.Value()
	}
	*m = read
	return nil
}

// modelAttribute is the attribute of a device that is its model.
const modelAttribute = "productName"

// modelOf returns the model of a device, or nothing.
func modelOf(attributes device.Attributes) string {
	if model := attributes[modelAttribute]; model.Kind() == device.StringAttribute {
		return model.String()
	}
	return ""
}
