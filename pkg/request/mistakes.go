// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package request

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/kubeletdevice"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Mistake is an annotation of a pod, or a part of a valid one, that does not do what its author
// probably wants. The scheduler writes an event for it, and kubectl device lint a warning.
type Mistake struct {
	// Field is the path of the part, as in [deviceinfo.Error], or the annotation's key after the
	// word annotation. Word is the word that is wrong.
	Field, Word string
	// Problem says what is wrong, and what to write.
	Problem string
	// Known are the words that may stand there instead. It is empty where they are unknown.
	Known []string
	// Option says that Word may be the name of an option of a device scheduler, such as
	// gpu/gpu-generate-topology. It is a mistake if no device scheduler has this option.
	Option bool
	// Refused says that the scheduler refuses a pod that has the mistake and requests devices.
	Refused bool
}

// String returns field, problem and the known word that is most similar.
func (m Mistake) String() string {
	text := m.Field + ": " + m.Problem
	if word := Nearest(m.Word, m.Known); word != "" {
		text += fmt.Sprintf("; did you mean %q?", word)
	}
	return text
}

// leastMemory is the smallest plausible share of a device's memory, in bytes. A smaller number
// lacks its unit.
const leastMemory = 1 << 20

// wholeDevice is the resource of which a device has 1, as docs/vendors/plugins.md has it.
const wholeDevice = "cards"

// memory is the resource that is the memory of a device in bytes, as docs/vendors/plugins.md has
// it.
const memory = "memory"

// memoryMillionths is the resource that is a part of the memory of a device, as
// docs/use/hami-and-kai.md has it. No device has it: plugins make bytes of it.
const memoryMillionths = "memory-millionths"

// Options returns the published names of requests that say how devices are chosen. Device
// schedulers may have others.
func Options() []types.ResourceName { return []types.ResourceName{"gpu/gpu-generate-topology"} }

// Mistakes returns the mistakes in an annotation, which LocatePod has read: unknown fields in the
// order of the text, then those of the pod as a whole, of init containers and of other containers.
func Mistakes(written *types.PodInfo, source *deviceinfo.Source) []Mistake {
	var found mistakes
	for _, field := range source.Unknown {
		if field.Field != "$schema" { // for editors
			found.add(Mistake{
				Field: field.Field, Word: field.Key, Problem: "the field is not read", Known: field.Known,
			})
		}
	}
	found.requests("", "", written.Requests)
	found.podRequests(written.Requests)
	found.containers("initcontainer", written.InitContainers)
	found.containers("runningcontainer", written.RunningContainers)
	return found
}

// mistakes collects mistakes.
type mistakes []Mistake

func (m *mistakes) add(mistake Mistake) { *m = append(*m, mistake) }

// podRequests adds counts that are written for the pod as a whole, unless they are errors: see
// Errors.
func (m *mistakes) podRequests(requests types.ResourceList) {
	for _, request := range slices.Sorted(maps.Keys(requests)) {
		if requests[request] > 0 && IsCount(request) && mayBeOption(request) {
			m.add(Mistake{
				Field: deviceinfo.RequestField("", "", request), Word: string(request), Problem: noneForWhole,
				Option: true,
			})
		}
	}
}

// containers adds the mistakes of one of the lists of containers.
func (m *mistakes) containers(list string, containers map[string]types.ContainerInfo) {
	for _, name := range slices.Sorted(maps.Keys(containers)) {
		m.requests(list, name, containers[name].Requests)
		m.scorers(list, name, containers[name])
	}
}

// requests adds the mistakes in the requests of a container, or of the pod as a whole.
func (m *mistakes) requests(list, container string, requests types.ResourceList) {
	for _, request := range slices.Sorted(maps.Keys(requests)) {
		quantity := requests[request]
		mistake := Mistake{Field: deviceinfo.RequestField(list, container, request), Word: string(request)}
		full := resource.WithPrefix(request)
		path, err := resource.ParseRequest(request)
		switch {
		case !IsPath(request) && !IsCount(request):
			// The scheduler of kubelet device plugins is built in, and has no options.
			mistake.Option = !strings.HasPrefix(string(full), types.DeviceGroupPrefix+"/"+kubeletdevice.Level+"/")
			mistake.Problem = "no device scheduler reads this request, and it has no effect"
			for _, option := range Options() {
				mistake.Known = append(mistake.Known, string(option))
			}
		case full != request && requests[full] != quantity && contains(requests, full):
			mistake.Problem = fmt.Sprintf("%s is the same request and has %d: the %d here has no effect, remove one",
				full, requests[full], quantity)
		case err == nil && path.Depth() > 0 && path.Resource() == memory && quantity > 0 && quantity < leastMemory:
			mistake.Problem = fmt.Sprintf(`it is for %d bytes, less than 1 MiB: write the unit, such as "20Gi"`,
				quantity)
		case err == nil && path.Depth() > 0 && path.Resource() == wholeDevice && quantity > 1:
			mistake.Problem = fmt.Sprintf("it is for %d of one device, which has 1: write a request with a "+
				"placeholder of its own for each device, or count them", quantity)
		default:
			continue
		}
		m.add(mistake)
	}
}

// scorers adds the scorers that nothing reads: those for resources that the container does not
// request, and those for other requests than paths of devices that the group scheduler places.
func (m *mistakes) scorers(list, container string, info types.ContainerInfo) {
	requested := map[types.ResourceName]bool{}
	var known []string
	for name := range info.Requests {
		requested[resource.WithPrefix(name)] = true
		known = append(known, string(name))
	}
	slices.Sort(known)
	for _, name := range slices.Sorted(maps.Keys(info.Scorer)) {
		mistake := Mistake{
			Field: deviceinfo.ContainerField(list, container, "scorer", string(name)), Word: string(name),
		}
		_, selected, _ := kubeletdevice.ParseSelection(name, 1)
		switch {
		case !requested[resource.WithPrefix(name)]:
			mistake.Problem = "the container does not request it, and the scorer has no effect"
			mistake.Known = known
		case !IsPath(name):
			mistake.Problem = "it is no path of a device, and the scorer has no effect: remove it"
		case selected:
			mistake.Problem = "devices of kubelet device plugins have no scorers, and it has no effect: remove it"
		default:
			continue
		}
		m.add(mistake)
	}
}

func contains(list types.ResourceList, name types.ResourceName) bool {
	_, ok := list[name]
	return ok
}
