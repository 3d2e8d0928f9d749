// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/kubeletdevice"
	"github.com/kubedevice/kubedevice/pkg/request"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// annotation is the annotation of a pod.
type annotation struct {
	*linter
	pod     *pod
	key     *yaml.Node
	value   *yaml.Node
	written *types.PodInfo
	source  *deviceinfo.Source
}

// checkAnnotation checks the annotation of a pod. What the decoder refuses ends the check: so it
// does for the scheduler.
func (l *linter) checkAnnotation(p *pod, e entry) {
	a := &annotation{linter: l, pod: p, key: e.key, value: e.value}
	if e.value.Kind != yaml.ScalarNode || e.value.Tag != "!!str" {
		l.addAt(Error, e.value, "annotation %s: the value is no string: write \"|\" behind the key, and the JSON in "+
			"the lines below", annotationKey)
		return
	}
	text := e.value.Value
	if text == "" {
		return
	}
	containers := len(p.Spec.InitContainers) + len(p.Spec.Containers)
	if err := request.CheckSize(containers, text); err != nil {
		l.addAt(Error, e.key, "%v", err)
		return
	}
	a.checkReserved()
	var err error
	if a.written, a.source, err = deviceinfo.LocatePod(text); err != nil {
		a.report(err)
		return
	}
	if err := request.CheckCounts(a.written); err != nil {
		l.addAt(Error, e.key, "%v", err)
		return
	}
	for _, mistake := range request.Mistakes(a.written, a.source) {
		if !mistake.Option || !a.mayBeOption(types.ResourceName(mistake.Word), mistake.Known) {
			a.add(Warning, a.inner(a.source.Offset(mistake.Field)), "annotation %s: %s: %s", annotationKey,
				mistake.Field, mistake.Problem).suggest(mistake.Word, mistake.Known)
		}
	}
	wrong := map[string]bool{} // fields
	for _, err := range request.Errors(a.written) {
		wrong[err.Field] = true
		a.add(Error, a.inner(a.source.Offset(err.Field)), "%v", &err).Word = string(err.Request)
	}
	a.pod.requests, a.pod.written = len(a.written.Requests) > 0, a.written
	for _, name := range slices.Sorted(maps.Keys(a.written.Requests)) {
		field := deviceinfo.RequestField("", "", name)
		if selected, ok, _ := kubeletdevice.ParseSelection(name, a.written.Requests[name]); ok && !wrong[field] {
			a.checkSelection(field, name, selected)
		}
	}
	a.checkContainers("initcontainer", a.written.InitContainers, wrong)
	a.checkContainers("runningcontainer", a.written.RunningContainers, wrong)
}

// place returns the place of a byte of the value.
func (a *annotation) place(offset int) int { return a.text.positionInScalar(a.value, offset) }

// inner returns the place of what is in the quotes that begin at a byte of the value.
func (a *annotation) inner(offset int) int {
	if strings.HasPrefix(a.value.Value[min(offset, len(a.value.Value)):], `"`) {
		offset++
	}
	return a.place(offset)
}

// report adds an error of the decoder.
func (a *annotation) report(err error) {
	offset := 0
	var problem *deviceinfo.Error
	if errors.As(err, &problem) {
		offset = problem.Offset
	}
	if !json.Valid([]byte(a.value.Value)) {
		a.add(Error, a.place(offset), "%v", err)
		return
	}
	a.add(Error, a.inner(offset), "%v", err).Word = wordAt(a.value.Value, offset)
}

// wordAt returns the string without its quotes, or the number or literal, that begins at a byte of
// JSON. It is empty at any other.
func wordAt(value string, offset int) string {
	rest := value[min(offset, len(value)):]
	if text, ok := strings.CutPrefix(rest, `"`); ok {
		word, _, _ := strings.Cut(text, `"`)
		return word
	}
	if end := strings.IndexAny(rest, "{}[],:\" \t\r\n"); end >= 0 {
		rest = rest[:end]
	}
	return rest
}

// checkReserved looks for what the admission policy refuses, each word once.
func (a *annotation) checkReserved() {
	seen := map[string]bool{}
	for _, at := range request.Reserved(a.value.Value) {
		word := a.value.Value[at[0]:at[1]]
		if seen[strings.ToLower(word)] {
			continue
		}
		seen[strings.ToLower(word)] = true
		text := "annotation %s: it has the word %q, which only the device scheduler may write: remove it and leave " +
			"requests and scorer"
		if word == `\` {
			text = "annotation %s: it has a backslash (%q), with which words of the scheduler could be spelled " +
				"differently: write the character itself"
		}
		a.add(Error, a.place(at[0]), text, annotationKey, word).Word = word
	}
}

// checkContainers checks one of the lists of containers, without the requests that are known to be
// wrong.
func (a *annotation) checkContainers(list string, containers map[string]types.ContainerInfo, wrong map[string]bool) {
	names := a.names(list)
	for _, name := range slices.Sorted(maps.Keys(containers)) {
		info := containers[name]
		a.pod.requests = a.pod.requests || len(info.Requests) > 0
		field := deviceinfo.ContainerField(list, name, "", "")
		one := &types.PodInfo{}
		if list == "initcontainer" {
			one.InitContainers = map[string]types.ContainerInfo{name: info}
		} else {
			one.RunningContainers = map[string]types.ContainerInfo{name: info}
		}
		merged, err := deviceinfo.PodRequest(a.pod.Pod, one)
		if err != nil {
			a.add(Error, a.inner(a.source.Offset(field)), "%v", err).suggest(name, names)
			continue
		}
		for _, request := range slices.Sorted(maps.Keys(info.Requests)) {
			if field := deviceinfo.RequestField(list, name, request); !wrong[field] {
				a.checkRequest(field, request, info.Requests[request])
			}
		}
		limits := merged.GetContainerInPod(name).KubeRequests
		a.checkUncovered(name, info.Requests, limits, field)
		for _, mistake := range request.SmallerCounts(list, name, info.Requests, limits) {
			a.add(Warning, a.inner(a.source.Offset(mistake.Field)), "annotation %s: %s: %s", annotationKey,
				mistake.Field, mistake.Problem).Word = mistake.Word
		}
	}
}

// names returns the names that a list may have.
func (a *annotation) names(list string) (names []string) {
	empty, err := deviceinfo.PodRequest(a.pod.Pod, &types.PodInfo{})
	if err != nil {
		return nil
	}
	containers := empty.RunningContainers
	if list == "initcontainer" {
		containers = empty.InitContainers
	}
	return slices.Sorted(maps.Keys(containers))
}

// mayBeOption reports whether a request that is for no device may be an option of a plugin, which
// lint does not know: it has a family, as options have, and is called unlike all that lint knows.
func (a *annotation) mayBeOption(name types.ResourceName, options []string) bool {
	if slices.Contains(options, string(name)) || slices.Contains(options, strings.TrimPrefix(string(name), prefix)) {
		return true
	}
	family, _, hasFamily := strings.Cut(strings.TrimPrefix(string(name), prefix), "/")
	known := request.Nearest(string(name), options) != "" || slices.ContainsFunc(options, func(option string) bool {
		return strings.HasPrefix(option, family+"/")
	})
	return hasFamily && !known
}

// prefix begins the full form of a request.
const prefix = types.DeviceGroupPrefix + "/"

// checkRequest compares what a container requests with what nodes have.
func (a *annotation) checkRequest(field string, name types.ResourceName, quantity int64) {
	offset := a.source.Offset(field)
	selected, ok, _ := kubeletdevice.ParseSelection(name, quantity)
	switch {
	case ok:
		a.checkSelection(field, name, selected)
	case request.IsPath(name):
		a.compare(field, offset, name, quantity)
	default:
		a.checkCount(field, offset, name, quantity)
	}
}

// checkSelection compares a request for devices of a kubelet device plugin with what nodes have.
func (a *annotation) checkSelection(field string, name types.ResourceName, selected kubeletdevice.Selection) {
	offset := a.source.Offset(field)
	a.checkCount(field, offset, selected.Resource, 0)
	if a.cluster == nil || a.cluster.ids[selected.Resource] == nil {
		return
	}
	ids, numaNodes := a.cluster.ids[selected.Resource], a.cluster.numa[selected.Resource]
	if selected.ID != "" && !ids[selected.ID] {
		a.add(Warning, a.segment(offset, name, kubeletdevice.ByID+selected.ID), "annotation %s: %s: %s", annotationKey,
			field, request.UnknownDevice(selected)).suggest(selected.ID, slices.Sorted(maps.Keys(ids)))
	}
	if numa, named := strings.CutPrefix(selected.NUMA, kubeletdevice.ByID); named && !numaNodes[numa] {
		a.add(Warning, a.segment(offset, name, selected.NUMA), "annotation %s: %s: no node has a device of %s on NUMA "+
			"node %s", annotationKey, field, selected.Resource, numa).suggest(numa, slices.Sorted(maps.Keys(numaNodes)))
	}
}

// checkCount compares a count of an extended resource with what nodes have.
func (a *annotation) checkCount(field string, offset int, name types.ResourceName, quantity int64) {
	if a.cluster == nil || !request.IsCount(name) {
		return
	}
	most, known := a.cluster.plain[name]
	switch {
	case !known:
		a.add(Warning, a.inner(offset), "annotation %s: %s: no node has the resource %q", annotationKey, field, name).
			suggest(string(name), a.cluster.plainNames())
	case quantity > most:
		a.add(Warning, a.inner(offset), "annotation %s: %s: no node has more than %s of it", annotationKey, field,
			grouptree.Human(most)).Word = string(name)
	}
}

// compare compares a request for a device with what nodes have.
func (a *annotation) compare(field string, offset int, request types.ResourceName, quantity int64) {
	path, err := resource.ParseRequest(request)
	if a.cluster == nil || err != nil {
		return
	}
	warn := func(word, format string, args ...any) *Finding {
		text := append([]any{annotationKey, field}, args...)
		return a.add(Warning, a.segment(offset, request, word), "annotation %s: %s: "+format, text...)
	}
	for level := range path.Levels() {
		if !a.cluster.levels[level] {
			warn(level, "no node has the level %q", level).suggest(level, a.cluster.levelNames())
			return
		}
	}
	k := kind{path.DeviceLevel(), path.Resource()}
	most, known := a.cluster.most[k]
	switch {
	case k.resource == "memory-millionths": // no device has it
	case !known && k.level == "":
		warn(k.resource, "no node has %q of its own", k.resource).suggest(k.resource, a.cluster.resourcesOf(k.level))
	case !known:
		warn(k.resource, "no %s of any node has %q", k.level, k.resource).
			suggest(k.resource, a.cluster.resourcesOf(k.level))
	case !resource.IsEnumResource(request) && quantity > most:
		warn(k.resource, "it is %s: no node has more of it than %s in one %s", grouptree.Human(quantity),
			grouptree.Human(most), k.level).Word = k.resource
	}
}

// segment returns the place of a word in the key of a request at a byte of the value.
func (a *annotation) segment(offset int, request types.ResourceName, word string) int {
	key := strings.TrimPrefix(a.value.Value[min(offset, len(a.value.Value)):], `"`)
	if strings.HasPrefix(key, string(request)) { // no part of it is escaped
		if at := strings.Index("/"+string(request)+"/", "/"+word+"/"); at >= 0 {
			return a.place(offset + 1 + at)
		}
	}
	return a.inner(offset)
}

// checkUncovered looks for whole devices that limits do not name: see [request.Uncovered].
func (a *annotation) checkUncovered(container string, requests, limits types.ResourceList, field string) {
	counting := request.Counting{
		Devices: func(name types.ResourceName) bool {
			for _, limit := range a.pod.limits {
				if limit.name == name {
					return true
				}
			}
			return a.cluster != nil && a.cluster.plain[name] > 0
		},
		Paths: a.countedAs,
	}
	for _, u := range counting.Uncovered(container, requests, limits) {
		a.add(Warning, a.inner(a.source.Offset(field)), "%s",
			u.Text("quotas count limits, and in a namespace where one counts these the pod is not scheduled")).
			Word = container
	}
}

// wholeDevice is the resource of which a device has 1 if its plugin shares it or gives it away as a
// whole, as docs/vendors/plugins.md has it.
const wholeDevice = "cards"

// countedAs returns the plain resource that counts the whole devices that a path is for. Kubelet
// device plugins say it in the name. Of others the scheduler's plugin knows: here it is the only
// plain resource that counts as many devices on some node; without a cluster, the only one in the
// pod's own limits that is called like the devices.
func (a *annotation) countedAs(full types.ResourceName) (plain types.ResourceName, ok bool) {
	if selected, ok, _ := kubeletdevice.ParseSelection(full, 1); ok {
		return selected.Resource, true
	}
	path, err := resource.ParsePath(full)
	if err != nil {
		return "", false
	}
	k := kind{path.DeviceLevel(), path.Resource()}
	names := map[string]bool{}
	switch {
	case a.cluster != nil:
		names = a.cluster.whole[k]
	case k.resource == wholeDevice:
		for _, limit := range a.pod.limits {
			if countsLevel(limit.name, k.level) {
				names[string(limit.name)] = true
			}
		}
	}
	for name := range names {
		plain = types.ResourceName(name)
	}
	return plain, len(names) == 1
}
