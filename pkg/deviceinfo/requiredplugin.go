// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"encoding/json"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"
)

const (
	// RequiredPluginAnnotation is the key of the annotation of a node whose container runtime
	// refuses to create a container that requires an NRI plugin which is not there. Its value is
	// NRIPlugin; any other says nothing.
	RequiredPluginAnnotation = "KubeDevice/RequiredPlugin"
	// NRIPlugin is the name under which kubecri registers as an NRI plugin.
	NRIPlugin = "kubedevice"
	// ToleratedPluginsAnnotation is the key that NRI's documentation gives for pods whose
	// containers are created although a plugin is missing that the runtime requires of all. The
	// runtime's configuration names the key, and may name another one. It has the three forms of
	// requiredPlugins, and counts for these, too. Source: plugins/default-validator of
	// github.com/containerd/nri.
	ToleratedPluginsAnnotation = "tolerate-missing-plugins.noderesource.dev"
)

// requiredPlugins is the key by which a pod requires NRI plugins: for all containers with /pod at
// its end, or without an end, which /pod hides; for one with /container.NAME, which hides both. The
// value is a YAML list. Source: pkg/plugin/annotations.go of github.com/containerd/nri.
const requiredPlugins = "required-plugins.noderesource.dev"

// RequirePlugin returns the annotations to add to a pod's, so that the containers of these names
// require kubecri beside what they require already. So do others of the pod that have no list of
// their own. A list that cannot be read stays: the runtime refuses its containers anyway. A name
// that is too long for a key cannot have a list of its own.
func RequirePlugin(annotations map[string]string, containers []string) map[string]string {
	added := map[string]string{}
	pod := requiredPlugins + "/pod"
	require := func(key string, hidden ...string) {
		for _, from := range append([]string{key}, hidden...) {
			if value, ok := annotations[from]; ok {
				if merged, ok := withPlugin(value); ok {
					added[key] = merged
				}
				return
			}
		}
		added[key], _ = withPlugin("")
	}
	require(pod, requiredPlugins)
	for _, name := range containers {
		if key := requiredPlugins + "/container." + name; len(validation.IsQualifiedName(key)) == 0 {
			require(key, pod, requiredPlugins)
		}
	}
	return added
}

// withPlugin returns the list with kubecri in it, and whether it could be read.
func withPlugin(value string) (merged string, ok bool) {
	var list []string
	if err := yaml.Unmarshal([]byte(value), &list); err != nil {
		return "", false
	}
	if slices.Contains(list, NRIPlugin) {
		return value, true
	}
	text, err := json.Marshal(append(list, NRIPlugin))
	return string(text), err == nil
}
