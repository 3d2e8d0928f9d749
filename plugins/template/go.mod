// Change the module's path to your own: Go opens only one plugin of each package path.
module example.com/widget

go 1.26.0

require github.com/kubedevice/kubedevice/pkg/sdk v0.1.0

// In a copy, say where the SDK is: see "Copy it" in README.md. The version above must be that of the hosts.
replace github.com/kubedevice/kubedevice/pkg/sdk => ../../pkg/sdk
