// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"

	"go.yaml.in/yaml/v3"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/request"
	"github.com/kubedevice/kubedevice/pkg/request/names"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

const annotationKey = deviceinfo.Annotation

// pod is what a template has that devices are about.
type pod struct {
	*corev1.Pod
	limits []limit
	// requests says that the annotation, or a name of HAMi or KAI, requests devices, once they were
	// read.
	requests bool
	// written is the annotation, if it could be read.
	written *types.PodInfo
}

// limit is an extended resource in a container's limits or requests.
type limit struct {
	container  string
	name       types.ResourceName
	quantity   apiresource.Quantity
	key, value *yaml.Node
	running    bool // the container runs along with the others
}

// readPod reads a template. Quantities that are none are findings.
func (l *linter) readPod(t template) *pod {
	p := &pod{Pod: &corev1.Pod{}}
	p.Spec.NodeName = textOf(t.spec, "nodeName")
	for _, node := range contentOf(t.spec, "initContainers") {
		p.Spec.InitContainers = append(p.Spec.InitContainers, l.readContainer(p, resolve(node), true))
	}
	for _, node := range contentOf(t.spec, "containers") {
		p.Spec.Containers = append(p.Spec.Containers, l.readContainer(p, resolve(node), false))
	}
	return p
}

func (l *linter) readContainer(p *pod, node *yaml.Node, init bool) corev1.Container {
	c := corev1.Container{Name: textOf(node, "name")}
	if policy := corev1.ContainerRestartPolicy(textOf(node, "restartPolicy")); policy != "" {
		c.RestartPolicy = &policy
	}
	running := !init || deviceinfo.IsSidecar(&c)
	c.Resources.Limits = l.readResources(p, &c, running, get(node, "resources", "limits"))
	c.Resources.Requests = l.readResources(p, &c, running, get(node, "resources", "requests"))
	return c
}

func (l *linter) readResources(p *pod, c *corev1.Container, running bool, node *yaml.Node) corev1.ResourceList {
	list := corev1.ResourceList{}
	for _, e := range entries(node) {
		name := types.ResourceName(e.key.Value)
		if !resource.IsExtendedResource(name) {
			continue
		}
		quantity, err := apiresource.ParseQuantity(e.value.Value)
		if err != nil || quantity.Sign() < 0 || quantity.MilliValue()%1000 != 0 {
			l.addAt(Error, e.value, "container %q: %q of %s is no whole number: write how many devices it gets",
				c.Name, e.value.Value, name).Word = e.value.Value
			continue
		}
		known := slices.ContainsFunc(p.limits, func(other limit) bool {
			return other.container == c.Name && other.name == name
		})
		if !known { // limits and requests of an extended resource are equal
			p.limits = append(p.limits, limit{c.Name, name, quantity, e.key, e.value, running})
		}
		list[corev1.ResourceName(name)] = quantity
	}
	return list
}

// checkAnnotations finds annotations that no program reads: misspelled ones, those with a wrong
// value, and those of a workload. Of the pod the limits and the requests were read.
func (l *linter) checkAnnotations(t template, p *pod) {
	for _, e := range entries(get(t.metadata, "annotations")) {
		mistake := request.CheckAnnotation(e.key.Value, e.value.Value)
		if mistake == nil {
			continue
		}
		at, severity := e.key, Warning
		if mistake.Word != e.key.Value {
			at = e.value
		}
		nearest := request.Nearest(mistake.Word, mistake.Known)
		if mistake.Refused && (nearest == annotationKey || p.requests || len(p.limits) > 0) {
			severity = Error
		}
		l.addAt(severity, at, "%s: %s", mistake.Field, mistake.Problem).suggest(mistake.Word, mistake.Known)
	}
	keys := request.AnnotationKeys()
	for _, e := range entries(get(t.outer, "annotations")) {
		if word := e.key.Value; slices.Contains(keys, word) {
			l.addAt(Warning, e.key, "annotation %s of %s itself is not read: write it into the metadata of its pod "+
				"template", word, l.object).Word = word
		}
	}
}

// checkLimits compares limits with what nodes have.
func (l *linter) checkLimits(p *pod) {
	if l.cluster == nil {
		return
	}
	sums := map[types.ResourceName]int64{} // of the containers that run along with each other
	for _, limit := range p.limits {
		most, known := l.cluster.plain[limit.name]
		if slices.Contains(names.Resources(), string(limit.name)) {
			continue // they are compiled to requests, and no node lists them
		}
		if !known {
			l.addAt(Warning, limit.key, "no node has the resource %q", limit.name).
				suggest(string(limit.name), l.cluster.plainNames())
			continue
		}
		sum, before := limit.quantity.Value(), int64(0)
		if limit.running {
			before = sums[limit.name]
			sum = addCapped(sum, before)
			sums[limit.name] = sum
		}
		if sum > most && before <= most {
			l.addAt(Warning, limit.value, "container %q: with it the pod requests %s of %s: no node has more than %s",
				limit.container, grouptree.Human(sum), limit.name, grouptree.Human(most)).Word = limit.value.Value
		}
	}
}

// checkNodeName looks for pods that pass by the scheduler.
func (l *linter) checkNodeName(t template, p *pod) {
	const fix = "spec.nodeName binds the pod without the device scheduler: remove it, and choose the node by " +
		"nodeSelector or affinity"
	switch node := get(t.spec, "nodeName"); {
	case p.Spec.NodeName == "":
	case p.requests:
		l.addAt(Error, node, "the pod requests devices and would not get them: "+fix).Word = p.Spec.NodeName
	case len(p.limits) > 0:
		l.addAt(Warning, node, "if %s is a device of KubeDevice, the pod would not get it: "+fix,
			p.limits[0].name).Word = p.Spec.NodeName
	}
}

// addCapped adds two quantities that are not negative.
func addCapped(a, b int64) int64 {
	if sum := a + b; sum >= a {
		return sum
	}
	return 1<<63 - 1
}
