// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package frameworkplugin

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// reasonMistake is the reason of the event on a pod whose annotation has mistakes.
const reasonMistake = "RequestMistake"

// maxMistakeBytes is how much of the mistakes an event names. It has 1024 bytes for everything.
const maxMistakeBytes = 900

// mistakes returns the parts of a pod's annotations that do not do what its author probably wants:
// those of its request, and those of other annotations, which begin with the annotation.
func (p *Plugin) mistakes(pod *v1.Pod) (inRequest, others []string) {
	found, elsewhere := p.nodes.Requests.Mistakes(pod)
	for _, mistake := range found {
		if !mistake.Option || !p.schedulers.Reads(types.ResourceName(mistake.Word)) {
			inRequest = append(inRequest, mistake.String())
		}
	}
	for _, mistake := range elsewhere {
		others = append(others, mistake.String())
	}
	return inRequest, others
}

// maxExclusions is how many of a pod's exclusions are compared with the devices of all nodes.
const maxExclusions = 8

// unknownExclusions returns those of a pod's excluded devices that no node has: their IDs may be
// misspelled. It compares each with all nodes.
func (p *Plugin) unknownExclusions(pod *v1.Pod) (texts []string) {
	excluded := p.nodes.Requests.Exclusions(pod)
	for _, exclusion := range excluded[:min(len(excluded), maxExclusions)] {
		if !p.nodes.Knows(exclusion) {
			texts = append(texts, exclusion.Unknown().String())
		}
	}
	return texts
}

// Mistakes returns all mistakes in the annotations of a pod for which the scheduler writes events.
// Each begins with the annotation.
func (w *WhatIf) Mistakes(pod *v1.Pod) []string {
	inRequest, others := w.mistakes(pod)
	var texts []string
	for _, text := range slices.Concat(inRequest, w.unknownExclusions(pod)) {
		texts = append(texts, ofRequest(text))
	}
	return append(texts, others...)
}

// ofRequest returns the text of a mistake, or of several, in the annotation of a pod's request.
func ofRequest(text string) string {
	return fmt.Sprintf("annotation %s: %s", deviceinfo.Annotation, text)
}

// reportMistakes writes an event for the mistakes in a pod's annotations, without its unknown
// exclusions: once as long as they are the same. The pod is scheduled without them.
func (p *Plugin) reportMistakes(pod *v1.Pod) {
	if p.whatIf {
		return
	}
	inRequest, others := p.mistakes(pod)
	if len(inRequest) > 0 {
		inRequest[0] = ofRequest(inRequest[0])
	}
	texts := slices.Concat(inRequest, others)
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

// reportUnknown writes an event for the devices that a pod excludes and that no node has. Nodes are
// compared at the first attempt to schedule a pod with this annotation. The pod is scheduled.
func (p *Plugin) reportUnknown(pod *v1.Pod) {
	if p.whatIf || len(p.nodes.Requests.Exclusions(pod)) == 0 {
		return
	}
	annotation := pod.Annotations[deviceinfo.Annotation]
	if known, ok := p.unknown.Get(pod.UID); ok && known == annotation {
		return
	}
	p.unknown.Add(pod.UID, annotation)
	if texts := p.unknownExclusions(pod); len(texts) > 0 {
		p.handle.EventRecorder().Eventf(pod, nil, v1.EventTypeWarning, reasonMistake, "Scheduling", "%s",
			ofRequest(joinMistakes(texts)))
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
