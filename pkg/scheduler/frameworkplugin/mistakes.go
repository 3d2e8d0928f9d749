// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package frameworkplugin

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// reasonMistake is the reason of the event on a pod whose annotation has mistakes.
const reasonMistake = "RequestMistake"

// maxMistakeBytes is how much of the mistakes an event names. It has 1024 bytes for everything.
const maxMistakeBytes = 900

// reportMistakes writes an event for the parts of a pod's annotations that do not do what its
// author probably wants: once as long as they are the same. The pod is scheduled without them.
func (p *Plugin) reportMistakes(pod *v1.Pod) {
	if p.whatIf {
		return
	}
	inRequest, others := p.nodes.Requests.Mistakes(pod)
	var texts []string
	for _, mistake := range inRequest {
		if !mistake.Option || !p.schedulers.Reads(types.ResourceName(mistake.Word)) {
			texts = append(texts, mistake.String())
		}
	}
	if len(texts) > 0 {
		texts[0] = fmt.Sprintf("annotation %s: %s", deviceinfo.Annotation, texts[0])
	}
	for _, mistake := range others {
		texts = append(texts, mistake.String())
	}
	if len(texts) == 0 {
		return
	}
	text := joinMistakes(texts)
	if known, ok := p.mistaken.Get(pod.UID); ok && known == text {
		return
	}
	p.mistaken.Add(pod.UID, text)
	p.handle.EventRecorder().Eventf(pod, nil, v1.EventTypeWarning, reasonMistake, "Scheduling", "%s", text)
}

// maxExclusions is how many of a pod's exclusions are compared with the devices of all nodes.
const maxExclusions = 8

// reportUnknown writes an event for the devices that a pod excludes and that no node has: their IDs
// may be misspelled. Nodes are compared at the first attempt to schedule a pod with this
// annotation. The pod is scheduled.
func (p *Plugin) reportUnknown(pod *v1.Pod) {
	excluded := p.nodes.Requests.Exclusions(pod)
	if len(excluded) == 0 || p.whatIf {
		return
	}
	annotation := pod.Annotations[deviceinfo.Annotation]
	if known, ok := p.unknown.Get(pod.UID); ok && known == annotation {
		return
	}
	p.unknown.Add(pod.UID, annotation)
	var texts []string
	for _, exclusion := range excluded[:min(len(excluded), maxExclusions)] {
		if !p.nodes.Knows(exclusion) {
			texts = append(texts, exclusion.Unknown().String())
		}
	}
	if len(texts) > 0 {
		p.handle.EventRecorder().Eventf(pod, nil, v1.EventTypeWarning, reasonMistake, "Scheduling",
			"annotation %s: %s", deviceinfo.Annotation, joinMistakes(texts))
	}
}

// joinMistakes returns the texts, as many as an event has space for.
func joinMistakes(texts []string) string {
	var joined strings.Builder
	for i, text := range texts {
		if i > 0 {
			if joined.Len()+len(text) > maxMistakeBytes {
				fmt.Fprintf(&joined, ", and there are %d more: see kubectl device lint", len(texts)-i)
				break
			}
			joined.WriteString(", ")
		}
		joined.WriteString(text[:min(len(text), maxMistakeBytes)])
	}
	return joined.String()
}
