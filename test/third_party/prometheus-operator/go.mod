module github.com/kubedevice/kubedevice/test/third_party/prometheus-operator

go 1.26.2

require github.com/prometheus-operator/prometheus-operator v0.85.0
