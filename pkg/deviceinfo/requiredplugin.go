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
	// refuses to create a container that requires an absent NRI plugin. Its value is NRIPlugin;
	// readers ignore any other value.
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

// requiredPlugins is the key with which a pod requires NRI plugins. With the suffix /pod, or
// without a suffix, which /pod overrides, it is for all containers; with /container.NAME, which
// overrides both, for one. The value is a YAML list. Source: pkg/plugin/annotations.go of
// github.com/containerd/nri.
const requiredPlugins = "required-plugins.noderesource.dev"

// RequirePlugin returns the annotations to add to a pod's, so that the containers of these names
// require kubecri in addition to the plugins that they require already. So do the pod's other
// containers without a list of their own. An invalid list stays: the runtime refuses its containers
// anyway. A container with a name too long for a key cannot have its own list.
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

// withPlugin returns the list with kubecri added, and whether the list is valid.
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
