// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import "strings"

// template is a template of the chart that is made of manifests.
type template struct {
	name      string
	manifests []string // patterns below deploy
	// when is the condition under which the chart has the objects; empty means always.
	when         string
	replacements []replacement
	// before stands before the manifests, which are indented by so many columns.
	before string
	indent int
}

// replacement puts an expression of a template in the place of a text that stands in the manifests
// so many times.
type replacement struct {
	old   string
	times int
	with  string
}

const (
	kubeScheduler = `"['system:kube-scheduler']"`
	vendors       = `"['nvidia.com', 'intel.com']"`

	schedulers = `{{ include "kubedevice.schedulers" . }}`
	devices    = `{{ include "kubedevice.celList" .Values.policies.devices }}`

	keyMount = "        - name: seal-key\n          mountPath: /etc/kubedevice/seal-key\n" +
		"          readOnly: true\n"

	// controlPlanes is where the scheduler runs by default. The chart's helper kubedevice.placement
	// makes it, for the pods of hooks, too.
	controlPlanes = "      affinity:\n        nodeAffinity:\n" +
		"          requiredDuringSchedulingIgnoredDuringExecution:\n            nodeSelectorTerms:\n" +
		"            - matchExpressions:\n              - key: node-role.kubernetes.io/control-plane\n" +
		"                operator: Exists\n      tolerations:\n" +
		"      - key: node-role.kubernetes.io/control-plane\n        operator: Exists\n"

	second = `eq .Values.scheduler.mode "second"`

	// schedulerPlugins are the names of the plugins that images of others bring.
	schedulerPlugins = `include "kubedevice.schedulerPlugins" .`
)

// withPlugins returns lines of a list, which the chart has where images of others bring plugins.
func withPlugins(lines string) string {
	indent, _, _ := strings.Cut(lines, "-")
	return indent + "{{- if " + schedulerPlugins + " }}\n" + lines + indent + "{{- end }}\n"
}

var templates = []template{
	{
		name: "policies", manifests: []string{"policies/*.yaml"}, when: ".Values.policies.enabled",
		replacements: []replacement{
			{kubeScheduler, 2, schedulers},
			{`"['tolerate-missing-plugins.noderesource.dev']"`, 1, `{{ include "kubedevice.toleratedKeys" . }}`},
			{`"[]"`, 1, `{{ include "kubedevice.tolerantNamespaces" . }}`},
			{
				`"['kubedevice.io/devices', 'kubedevice.io/enrolled', 'kubedevice.io/node-group']"`, 1,
				`{{ include "kubedevice.nodeLabels" . }}`,
			},
		},
	},
	{
		name: "policy-scheduler-name", manifests: []string{"policies-optional/kubedevice-scheduler-name.yaml"},
		when:         `eq (include "kubedevice.namePolicy" .) "mutate"`,
		replacements: []replacement{{vendors, 1, devices}},
	},
	{
		name: "policy-scheduler-name-required",
		manifests: []string{
			"policies-optional/kubedevice-scheduler-name-required.yaml",
		},
		when:         `eq (include "kubedevice.namePolicy" .) "require"`,
		replacements: []replacement{{vendors, 1, devices}},
	},
	{
		name: "policy-device-requests", manifests: []string{"policies-optional/kubedevice-device-requests.yaml"},
		when: ".Values.policies.deviceRequests",
		replacements: []replacement{{
			`"['kube-system/*']"`, 1, `{{ include "kubedevice.celList" .Values.node.deviceFirewall.allow }}`,
		}},
	},
	{
		name:      "policy-requests-need-limits",
		manifests: []string{"policies-optional/kubedevice-requests-need-limits.yaml"},
		when:      ".Values.policies.requestsNeedLimits",
	},
	{name: "rights", manifests: []string{"rbac/*.yaml"}},
	{
		name: "scheduler-rights", manifests: []string{"second-scheduler/rights.yaml"}, when: second,
		replacements: []replacement{{"kubedevice-system", 9, "{{ .Release.Namespace }}"}},
	},
	{
		name: "scheduler", manifests: []string{"second-scheduler/deployment.yaml"}, when: second,
		replacements: []replacement{
			{"kubedevice-system", 2, "{{ .Release.Namespace }}"},
			{"replicas: 2\n", 1, "replicas: {{ .Values.scheduler.replicas }}\n"},
			{
				"image: localhost/kubedevice-scheduler\n", 1,
				`image: {{ include "kubedevice.image" (dict "root" . "image" .Values.image.scheduler) }}` + "\n",
			},
			{"imagePullPolicy: IfNotPresent\n", 1, "imagePullPolicy: {{ .Values.image.pullPolicy }}\n"},
			{
				"      priorityClassName: system-cluster-critical\n", 1,
				"      priorityClassName: {{ .Values.scheduler.priorityClassName | quote }}\n" +
					"      {{- with include \"kubedevice.pullSecrets\" . }}{{ . | nindent 6 }}{{ end }}\n",
			},
			{
				"        kubernetes.io/os: linux\n" + controlPlanes, 1, "        kubernetes.io/os: linux\n" +
					"        {{- with .Values.scheduler.nodeSelector }}{{ toYaml . | nindent 8 }}{{ end }}\n" +
					"      {{- with include \"kubedevice.placement\" . }}{{ . | nindent 6 }}{{ end }}\n",
			},
			// When the configuration changes, the pods are replaced.
			{
				"  template:\n    metadata:\n", 1, "  template:\n    metadata:\n      annotations:\n" +
					"        checksum/configuration: " +
					"{{ include (print $.Template.BasePath \"/scheduler-configuration.yaml\") . | sha256sum }}\n",
			},
			{
				"        - --device-seal-key=/etc/kubedevice/seal-key/private.pem\n", 1,
				"        {{- if include \"kubedevice.seals\" . }}\n" +
					"        - --device-seal-key=/etc/kubedevice/seal-key/private.pem\n" +
					"        - --device-seal-mode={{ .Values.seals.mode }}\n" +
					"        {{- end }}\n",
			},
			{
				"      containers:\n", 1, "      {{- with include \"kubedevice.pluginContainers\" (dict \"root\" . " +
					"\"half\" \"scheduler\" \"names\" (splitList \" \" (" + schedulerPlugins + "))) }}\n" +
					"      initContainers:\n      {{- trim . | nindent 6 }}\n      {{- end }}\n      containers:\n",
			},
			{
				"        env:", 1,
				withPlugins("        - --devschedpath=/plugins\n") +
					"        {{- if ne .Values.scheduler.topology \"prefer\" }}\n" +
					"        - --device-topology={{ .Values.scheduler.topology }}\n" +
					"        {{- end }}\n" +
					"        {{- range .Values.scheduler.extraArgs }}\n" +
					"        - {{ . | quote }}\n        {{- end }}\n        env:",
			},
			{
				"          requests:\n            cpu: 100m\n            memory: 256Mi\n", 1,
				"          {{- toYaml .Values.scheduler.resources | nindent 10 }}\n",
			},
			{
				keyMount, 1,
				"        {{- if include \"kubedevice.seals\" . }}\n" + keyMount +
					"        {{- end }}\n" +
					withPlugins("        - name: plugins\n          mountPath: /plugins\n"+
						"          subPath: plugins\n          readOnly: true\n"),
			},
			{
				"      - name: seal-key\n        secret:\n          secretName: kubedevice-seal-key\n" +
					"          defaultMode: 0440\n", 1,
				"      {{- if include \"kubedevice.seals\" . }}\n" +
					"      - name: seal-key\n        secret:\n" +
					"          secretName: {{ .Values.seals.secret | quote }}\n" +
					"          defaultMode: 0440\n      {{- end }}\n" +
					withPlugins("      - name: plugins\n        emptyDir: {}\n"),
			},
		},
	},
	{
		name: "scheduler-configuration", manifests: []string{"second-scheduler/scheduler.yaml"}, when: second,
		before: "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: kubedevice-scheduler-configuration\n" +
			"  namespace: {{ .Release.Namespace }}\ndata:\n  scheduler.yaml: |\n",
		indent:       4,
		replacements: []replacement{{"kubedevice-system", 1, "{{ .Release.Namespace }}"}},
	},
	{
		// The second scheduler, which is in the namespace of the release, takes the place of the
		// other one.
		name: "monitoring", when: ".Values.monitoring.enabled",
		manifests: []string{"monitoring/kube-scheduler.yaml", "monitoring/kube[cd]*.yaml", "monitoring/rights.yaml"},
		replacements: []replacement{
			{
				"replacement: ${1}:10261\n", 1,
				"replacement: ${1}:{{ splitList \":\" .Values.node.metricsBindAddress | last }}\n",
			},
			{"namespace: kube-system\n", 6, "namespace: {{ include \"kubedevice.monitoringNamespace\" . }}\n"},
			{
				"      component: kube-scheduler\n", 1, "      {{- if " + second + " }}\n" +
					"      app.kubernetes.io/name: kubedevice\n      app.kubernetes.io/component: scheduler\n" +
					"      {{- else }}\n      component: kube-scheduler\n      {{- end }}\n",
			},
		},
	},
}
