// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"fmt"
	"text/template"
)

// containerd2Config is for containerd 2. Root may lack CAP_SYS_RESOURCE, hence
// restrict_oom_score_adj.
var containerd2Config = template.Must(template.New("containerd.toml").Parse(`version = 3
root = "/var/lib/containerd"
state = "/run/containerd"

[grpc]
  address = "{{.Socket}}"

[metrics]
  address = "{{.Metrics}}"

[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "{{.Pause}}"
{{- with .Registries}}

[plugins."io.containerd.cri.v1.images".registry]
  config_path = "{{.}}"
{{- end}}

[plugins."io.containerd.cri.v1.runtime"]
  cdi_spec_dirs = ["/run/cdi"]
  restrict_oom_score_adj = true
{{- if .Restores}}
  enable_experimental_restore_via_create = true
{{- end}}
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["{{.Plugins}}"]
    conf_dir = "{{.Networks}}"
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    {{- with .PodAnnotation}}
    pod_annotations = ["{{.}}"]
    {{- end}}
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
      BinaryName = "{{.Runc}}"
      SystemdCgroup = false

[plugins."io.containerd.internal.v1.opt"]
  path = "/var/lib/containerd/opt"

[plugins."io.containerd.nri.v1.nri"]
  socket_path = "/run/nri/nri.sock"
  plugin_path = "/var/lib/nri/plugins"
  plugin_config_path = "/var/lib/nri/conf.d"
  [plugins."io.containerd.nri.v1.nri".default_validator]
    enable = true
`))

// containerd17Config is for containerd 1.7, which enables CDI only by configuration.
var containerd17Config = template.Must(template.New("containerd.toml").Parse(`version = 2
root = "/var/lib/containerd"
state = "/run/containerd"

[grpc]
  address = "{{.Socket}}"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{{.Pause}}"
  enable_cdi = true
  cdi_spec_dirs = ["/run/cdi"]
  restrict_oom_score_adj = true
{{- with .Registries}}
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "{{.}}"
{{- end}}
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{{.Plugins}}"
    conf_dir = "{{.Networks}}"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      BinaryName = "{{.Runc}}"
      SystemdCgroup = false

[plugins."io.containerd.internal.v1.opt"]
  path = "/var/lib/containerd/opt"
`))

// network is a node's CNI configuration: a bridge of its own for its pods, reached through the
// node.
var network = template.Must(template.New("cni").Parse(`{
  "cniVersion": "1.0.0",
  "name": "pods",
  "plugins": [{
    "type": "bridge",
    "bridge": "pods",
    "isGateway": true,
    "ipam": {"type": "host-local", "ranges": [[{"subnet": "{{.Pods}}"}]], "routes": [{"dst": "0.0.0.0/0"}]}
  }]
}
`))

func render(t *template.Template, data any) ([]byte, error) {
	var out bytes.Buffer
	if err := t.Execute(&out, data); err != nil {
		return nil, fmt.Errorf("write %s: %w", t.Name(), err)
	}
	return out.Bytes(), nil
}
