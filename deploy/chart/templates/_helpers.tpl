{{/* What the templates have in common. */}}

{{/* The reference of an image. root is the root context, image one of the values under image. A digest wins over the tag. */}}
{{- define "kubedevice.image" -}}
{{- $repository := printf "%s/%s" (.root.Values.image.registry | trimSuffix "/") .image.repository -}}
{{- if .image.digest -}}
{{ $repository }}@{{ .image.digest }}
{{- else -}}
{{ $repository }}:{{ .root.Values.image.tag | default .root.Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "kubedevice.pullSecrets" -}}
{{- with .Values.image.pullSecrets -}}
imagePullSecrets:
{{- range . }}
- name: {{ . | quote }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Labels of all objects that have no others. */}}
{{- define "kubedevice.labels" -}}
app.kubernetes.io/name: kubedevice
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{/* A CEL list of who may write allocations. */}}
{{- define "kubedevice.schedulers" -}}
{{- $users := list "system:kube-scheduler" -}}
{{- if eq .Values.scheduler.mode "second" -}}
{{- $users = append $users (printf "system:serviceaccount:%s:kubedevice-scheduler" .Release.Namespace) -}}
{{- end -}}
{{- include "kubedevice.celList" (concat $users .Values.policies.schedulers) -}}
{{- end -}}

{{/* A list of strings as CEL writes it, for a YAML string. */}}
{{- define "kubedevice.celList" -}}
{{- $quoted := list -}}
{{- range . -}}{{- $quoted = append $quoted (printf "'%s'" .) -}}{{- end -}}
{{- printf "[%s]" (join ", " $quoted) | quote -}}
{{- end -}}

{{/* A CEL list of the annotations by which pods tolerate that an NRI plugin is missing. */}}
{{- define "kubedevice.toleratedKeys" -}}
{{- $keys := list "tolerate-missing-plugins.noderesource.dev" -}}
{{- with (.Values.policies.missingPlugins | default dict).annotation }}{{ $keys = append $keys . | uniq }}{{ end -}}
{{- include "kubedevice.celList" $keys -}}
{{- end -}}

{{/* A CEL list of the namespaces whose pods may have such an annotation: the release's, if its own pods have it. */}}
{{- define "kubedevice.tolerantNamespaces" -}}
{{- $namespaces := (.Values.policies.missingPlugins | default dict).namespaces | default list -}}
{{- if (.Values.policies.missingPlugins | default dict).annotation }}{{ $namespaces = append $namespaces .Release.Namespace | uniq }}{{ end -}}
{{- include "kubedevice.celList" $namespaces -}}
{{- end -}}

{{/* A CEL list of the labels that keep kubecri on a node. */}}
{{- define "kubedevice.nodeLabels" -}}
{{- $labels := list "kubedevice.io/enrolled" "kubedevice.io/node-group" -}}
{{- range .Values.nodeGroups -}}
{{- range $key, $value := .nodeSelector }}{{ $labels = append $labels $key }}{{ end -}}
{{- end -}}
{{- include "kubedevice.celList" ($labels | uniq | sortAlpha) -}}
{{- end -}}

{{/* Where pods run that have the key for seals: affinity and tolerations. Fails where there is no such node. */}}
{{- define "kubedevice.placement" -}}
{{- $tolerations := .Values.scheduler.tolerations -}}
{{- if ne .Values.scheduler.placement "any" -}}
{{- $role := "node-role.kubernetes.io/control-plane" -}}
{{- $tolerations = concat (list (dict "key" $role "operator" "Exists")) $tolerations -}}
{{- $nodes := (lookup "v1" "Node" "" "").items -}}
{{- $found := not $nodes -}}
{{- range $nodes }}{{ if hasKey (.metadata.labels | default dict) $role }}{{ $found = true }}{{ end }}{{ end -}}
{{- if not $found -}}
{{- fail (printf "no node has the label %s, on which the scheduler runs and the key for seals is made: set scheduler.placement to any, and scheduler.nodeSelector to nodes without device pods, see \"Where it runs\" in docs/deploy/second-scheduler.md" $role) -}}
{{- end -}}
affinity:
  nodeAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      nodeSelectorTerms:
      - matchExpressions:
        - key: {{ $role }}
          operator: Exists
{{- end }}
{{- with $tolerations }}
tolerations: {{- toYaml . | nindent 0 }}
{{- end }}
{{- end -}}

{{/* Which policy gives device pods the scheduler's name: "mutate", "require", or "none". */}}
{{- define "kubedevice.namePolicy" -}}
{{- if eq .Values.policies.schedulerName "auto" -}}
{{- if semverCompare ">=1.36.0-0" .Capabilities.KubeVersion.Version }}mutate{{ else }}require{{ end -}}
{{- else -}}
{{- .Values.policies.schedulerName -}}
{{- end -}}
{{- end -}}

{{/* The namespace of the objects of the Prometheus operator, which reads pods of their own namespace. */}}
{{- define "kubedevice.monitoringNamespace" -}}
{{- if eq .Values.scheduler.mode "second" }}{{ .Release.Namespace }}{{ else }}kube-system{{ end -}}
{{- end -}}

{{- define "kubedevice.seals" -}}
{{- if ne .Values.seals.mode "off" }}true{{ end -}}
{{- end -}}

{{/* Fails where nodes are to refuse at once what has no seal, and have made none so far. */}}
{{- define "kubedevice.sealStep" -}}
{{- if eq .Values.seals.mode "enforce" -}}
{{- $installed := lookup "v1" "ConfigMap" .Release.Namespace "kubedevice-node" -}}
{{- if $installed -}}
{{- if eq "off" (get (get $installed.data "kubecri.yaml" | fromYaml) "sealMode") -}}
{{- fail "seals.mode is off, and nodes that enforce would refuse the containers of all pods that hold devices: set it to warn first, see \"Turn seals on\" in docs/deploy/chart.md" -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* kubecri's configuration file, without the node's name, which the pod adds. */}}
{{- define "kubedevice.kubecriConfiguration" -}}
apiVersion: kubecri.config.kubedevice.io/v1alpha1
kind: KubecriConfiguration
mode: {{ .Values.mode }}
criUpstream: {{ .Values.node.runtimeEndpoint }}
criDevices: {{ .Values.node.programs }}/devices
kubeconfig: {{ .Values.node.kubeconfig }}
nriSocket: {{ .Values.node.nriSocket }}
stateDir: {{ .Values.node.stateDir }}
metricsBindAddress: {{ .Values.node.metricsBindAddress | quote }}
deviceFirewall: {{ .Values.node.deviceFirewall.enabled }}
deviceFirewallAllow: {{ toJson .Values.node.deviceFirewall.allow }}
deviceFirewallVendors: {{ toJson .Values.node.deviceFirewall.vendors }}
onDeviceFailure: {{ .Values.node.onDeviceFailure }}
deviceFailureGracePeriod: {{ .Values.node.deviceFailureGracePeriod }}
deviceUsageInterval: {{ .Values.node.deviceUsageInterval }}
{{- with .Values.node.virtualDevices }}
virtualDevices: {{ toJson . }}
{{- end }}
onShareExceeded: {{ .Values.node.onShareExceeded }}
shareExceededGracePeriod: {{ .Values.node.shareExceededGracePeriod }}
contextMemory: {{ toJson .Values.node.contextMemory }}
{{- with .Values.node.shareLibrary }}
shareLibrary: {{ . }}
shareLibraryLocks: {{ $.Values.node.shareLibraryLocks | quote }}
{{- end }}
{{- if include "kubedevice.seals" . }}
sealCertificates: {{ .Values.node.programs }}/seal-certificates.pem
sealMode: {{ .Values.seals.mode }}
{{- else }}
sealMode: "off"
{{- end }}
logging: {format: text, verbosity: {{ .Values.node.verbosity }}}
{{- end -}}

{{/* Names of the plugins of .Values.pluginImages that the second scheduler loads, with spaces between them. */}}
{{- define "kubedevice.schedulerPlugins" -}}
{{- $names := list -}}
{{- range .Values.pluginImages -}}
{{- if has .name $names -}}
{{- fail (printf "pluginImages: two images have the plugin %q, of which the scheduler can load one: build one with another name" .name) -}}
{{- end -}}
{{- if get . "scheduler" | toString | ne "false" }}{{ $names = append $names .name }}{{ end -}}
{{- end -}}
{{- join " " $names -}}
{{- end -}}

{{/* Init containers that copy plugins of .Values.pluginImages, those of names, into the volume plugins. half is "device" or "scheduler": the directory of the scheduler gets links to the plugins of our own image, too. */}}
{{- define "kubedevice.pluginContainers" -}}
{{- $args := list "-device" "/copy" -}}
{{- if eq .half "scheduler" -}}
{{- $args = list "-scheduler" "/copy/plugins" -}}
{{- range list "nvidiagpu" "simgpu" -}}
{{- if not (has . $.names) }}{{ $args = concat $args (list "-link" (printf "/schedulerplugins/%s.so" .)) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- range .root.Values.pluginImages -}}
{{- if has .name $.names }}
- name: plugin-{{ regexReplaceAll "[._]" .name "-" }}
  image: {{ .image }}
  imagePullPolicy: {{ $.root.Values.image.pullPolicy }}
  args: {{- toYaml $args | nindent 2 }}
  securityContext:
    allowPrivilegeEscalation: false
    readOnlyRootFilesystem: true
    capabilities:
      drop: [ALL]
  volumeMounts:
  - name: plugins
    mountPath: /copy
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The pod of a hook that calls the API server. args are kubecri's. */}}
{{- define "kubedevice.hookPod" -}}
metadata:
  labels:
    app.kubernetes.io/name: kubedevice
    app.kubernetes.io/component: hook
spec:
  serviceAccountName: {{ .name }}
  {{- with include "kubedevice.pullSecrets" .root }}{{ . | nindent 2 }}{{ end }}
  restartPolicy: Never
  nodeSelector:
    kubernetes.io/os: linux
    {{- with .root.Values.scheduler.nodeSelector }}{{ toYaml . | nindent 4 }}{{ end }}
  {{- with include "kubedevice.placement" .root }}{{ . | nindent 2 }}{{ end }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 65532
    runAsGroup: 65532
    seccompProfile:
      type: RuntimeDefault
  containers:
  - name: kubecri
    image: {{ include "kubedevice.image" (dict "root" .root "image" .root.Values.image.kubecri) }}
    imagePullPolicy: {{ .root.Values.image.pullPolicy }}
    args: {{- toYaml .args | nindent 4 }}
    securityContext:
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities:
        drop: [ALL]
{{- end -}}

{{/* The identity of a hook: account, rights and their bindings. They go when the hook has ended. */}}
{{- define "kubedevice.hookIdentity" -}}
{{- $metadata := printf "  labels: %s\n  annotations:\n    helm.sh/hook: %s\n    helm.sh/hook-weight: \"-10\"\n    helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded,hook-failed" (include "kubedevice.labels" .root | nindent 4) .hook -}}
---
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
{{ $metadata }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
{{ $metadata }}
rules: {{- toYaml .rules | nindent 0 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
{{ $metadata }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ .name }}
subjects:
- kind: ServiceAccount
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
{{- with .clusterRules }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ $.name }}
{{ $metadata }}
rules: {{- toYaml . | nindent 0 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ $.name }}
{{ $metadata }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ $.name }}
subjects:
- kind: ServiceAccount
  name: {{ $.name }}
  namespace: {{ $.root.Release.Namespace }}
{{- end }}
{{- end -}}
