// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package device

// Isolator is implemented by a plugin whose devices a container could take without being given any,
// because its image or its pod sets an environment variable that the node's container runtime
// obeys.
type Isolator interface {
	// DenyEnvs returns environment variables by which a container gets none of the plugin's
	// devices, such as NVIDIA_VISIBLE_DEVICES=void. If the host runs with --isolate, it sets them,
	// over whatever the image or the pod says, in containers of pods from the API server that hold
	// none of the plugin's devices. It is asked once, when the plugin is loaded, before Start.
	DenyEnvs() map[string]string
}
