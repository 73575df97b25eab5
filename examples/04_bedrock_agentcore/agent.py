"""A plain Bedrock AgentCore app as its own documents write one; it knows nothing of Tenure."""

from bedrock_agentcore import BedrockAgentCoreApp

app = BedrockAgentCoreApp()


@app.entrypoint
def invoke(payload):
    return {"result": f"Hello! You said: {payload.get('prompt', 'nothing')}"}


if __name__ == "__main__":
    app.run()
