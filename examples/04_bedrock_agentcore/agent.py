"""A Bedrock AgentCore app as the AgentCore documentation shows it; it does not use Tenure."""

from bedrock_agentcore import BedrockAgentCoreApp

app = BedrockAgentCoreApp()


@app.entrypoint
def invoke(payload):
    return {"result": f"Hello! You said: {payload.get('prompt', 'nothing')}"}


if __name__ == "__main__":
    app.run()
